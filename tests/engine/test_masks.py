"""What an answer may say: masks in sampling, grammars, budgets for reasoning; and where stop strings count."""

import json

import numpy as np
import pytest

from mindnano import SamplingParams
from mindnano.checkpoint import synthetic, tiny
from mindnano.engine.budget import ThinkingBudget
from mindnano.engine.grammar import Grammars
from mindnano.engine.sampling import Sampler
from mindnano.engine.text import TextStream
from mindnano.errors import EngineError, MindNanoError
from mindnano.tokenizer import Tokenizer

CONFIG = tiny.config()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(synthetic.extras(CONFIG).tokenizer_json, CONFIG)


@pytest.fixture(scope="module")
def grammars(tokenizer):
    return Grammars(tokenizer, CONFIG.eos_token_ids)


class Only:
    def __init__(self, tokens):
        self.tokens, self.taken = tokens, []

    def allowed(self):
        mask = np.zeros(64, bool)
        mask[self.tokens] = True
        return mask

    def accept(self, token):
        self.taken.append(token)


@pytest.mark.parametrize(
    "params",
    [{"temperature": 0}, {}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5}, {"logit_bias": {7: 100}},
     {"repetition_penalty": 2, "presence_penalty": 1}],
)  # fmt: skip
def test_only_what_a_mask_allows_is_drawn(params):
    mask = Only([5, 9, 33])
    sampler = Sampler(SamplingParams(seed=1, **params), [7], 64, mask)
    generator = np.random.default_rng(0)
    for _ in range(50):
        logits = generator.normal(size=64).astype(np.float32)
        before = logits.copy()
        assert sampler.sample(logits).token in mask.tokens
        assert np.array_equal(logits, before)
    assert len(mask.taken) == 50


def test_of_what_is_allowed_the_likeliest_is_greedy():
    logits = np.arange(64, dtype=np.float32)
    assert Sampler(SamplingParams(temperature=0), [], 64, Only([3, 11])).sample(logits).token == 11


def test_logits_that_arent_numbers_dont_hide_behind_a_mask():
    logits = np.zeros(64, np.float32)
    logits[40] = np.nan
    with pytest.raises(EngineError):
        Sampler(SamplingParams(), [], 64, Only([1])).sample(logits)


def test_a_grammar_allows_its_language_and_then_the_end(grammars, tokenizer):
    mask = grammars.compile('start: "ab" | "ac"')
    a, b, c = (tokenizer.encode(one)[0] for one in "abc")
    assert list(np.flatnonzero(mask.allowed())) == [a]
    mask.accept(a)
    other = mask.copy()
    assert set(np.flatnonzero(mask.allowed())) == {b, c}
    mask.accept(b)
    assert set(np.flatnonzero(mask.allowed())) == set(CONFIG.eos_token_ids)
    assert set(np.flatnonzero(other.allowed())) == {b, c}  # copies go their own way
    mask.accept(CONFIG.eos_token_ids[0])


def test_a_grammar_that_is_left_is_an_error(grammars, tokenizer):
    mask = grammars.compile('start: "ab"')
    with pytest.raises(MindNanoError, match="can't be followed further") as error:
        mask.accept(tokenizer.encode("x")[0])
        mask.allowed()
    assert "\n" not in str(error.value)


def test_a_model_without_a_tokenizer_has_no_grammars():
    with pytest.raises(MindNanoError, match=r"no tokenizer\.json"):
        Grammars(Tokenizer(None, CONFIG), [1]).compile('start: "a"')


class TestBudget:
    CLOSE = "</think>"

    def run(self, tokenizer, budget, text, inner=None, steps=60):
        """What is said when the model would say `text` and then x for ever."""
        closing = tokenizer.encode("\n</think>\n")
        mask = ThinkingBudget(budget, closing, self.CLOSE, tokenizer, inner)
        said, wanted = [], tokenizer.encode(text)
        for _ in range(steps):
            allowed = mask.allowed()
            token = wanted[len(said)] if len(said) < len(wanted) else tokenizer.encode("x")[0]
            if allowed is not None and not allowed[token]:
                token = int(np.flatnonzero(allowed)[0])
            mask.accept(token)
            said.append(token)
        return tokenizer.decode(said)

    def test_it_closes_the_reasoning_in_time(self, tokenizer):
        assert self.run(tokenizer, 5, "abcdefghijk").startswith("abcde\n</think>\nxxx")

    def test_it_leaves_a_shorter_reasoning_alone(self, tokenizer):
        assert self.run(tokenizer, 30, "short</think>then much more than thirty tokens").startswith(
            "short</think>then much more than thirty tokens"
        )

    def test_it_waits_until_a_grammar_lets_it(self, tokenizer, grammars):
        inner = grammars.compile('start: think "yes"\nthink[lazy]: TEXT "</think>"\nTEXT: /(.|\\n)*/')
        text = "a" * 4 + "é" + "b"  # the budget ends inside a character
        said = self.run(tokenizer, 5, text, grammars.compile("start: TEXT\nTEXT: /(.|\\n)*/"), steps=20)
        assert said.startswith("aaaaé\n</think>\n")
        inner.allowed()


class TestStopAfter:
    def text(self, tokenizer, text, cut=1):
        stream = TextStream(tokenizer, ["STOP"], stop_after="</think>")
        shown = ""
        for token in tokenizer.encode(text):
            stream.push(token)
            shown += stream.take()
            if stream.stopped:
                break
        stream.finish()
        assert stream.decoded <= len(text)
        return shown + stream.take(), stream.stop

    def test_stop_strings_count_behind_the_marker_only(self, tokenizer):
        assert self.text(tokenizer, "aSTOPb</think>cSTOPd") == ("aSTOPb</think>c", "STOP")
        assert self.text(tokenizer, "ST</think>OP") == ("ST</think>OP", None)
        assert self.text(tokenizer, "no marker STOP") == ("no marker STOP", None)


def test_special_tokens_can_be_text():
    data = json.loads(synthetic.extras(CONFIG).tokenizer_json)
    names = {token["content"]: token["id"] for token in data["added_tokens"]}
    tokenizer = Tokenizer(json.dumps(data).encode(), CONFIG)
    end = names["<|role_end|>"]
    hidden, shown = TextStream(tokenizer, []), TextStream(tokenizer, [], shown={end})
    for stream in (hidden, shown):
        stream.push(tokenizer.encode("a")[0])
        stream.push(end)
        stream.finish()
    assert (hidden.text, shown.text) == ("a", "a<|role_end|>")
