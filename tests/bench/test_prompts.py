"""Prompts: exact in tokens for any tokenizer, unique, the same from the same seed."""

import re

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mindnano.bench.prompts import KINDS, Writer, exact
from mindnano.bench.prompts.text import write


@pytest.fixture(scope="module")
def bpe():
    """Tokens of a byte-level BPE that has seen such text: 1 to 12 bytes each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [Writer(str(seed)).text(20_000) for seed in range(3)],
        trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False),
    )
    return lambda text: len(tokenizer.encode(text).ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 2, 3, 63, 64, 65, 1000, 4096])
def test_exact_in_tokens(bpe, kind, tokens):
    for count in (bpe, lambda text: len(text.encode()), lambda text: -(-len(text) // 3)):
        found = exact(kind, f"{kind} {tokens}", tokens, count)
        assert found.tokens == count(found.text) == tokens


def test_a_tokenizer_that_allows_no_exact_cut_gets_the_next_smaller_number():
    found = exact("text", "even", 1001, lambda text: 2 * (len(text) // 8))
    assert found.tokens == 1000


def test_no_two_prompts_begin_alike():
    """A shared beginning longer than "Record " could be served from a prefix cache."""
    beginnings = [write(kind, str(seed), 200)[:16] for kind in KINDS for seed in range(300)]
    assert len(set(beginnings)) == len(beginnings)


def test_the_same_seed_gives_the_same_text_and_a_longer_one_begins_with_it():
    for kind in KINDS:
        short, long = write(kind, "a", 2_000), write(kind, "a", 20_000)
        assert short == write(kind, "a", 2_000)
        assert long.startswith(short[:2_000])
        assert write(kind, "b", 2_000) != short


def test_text_is_prose_code_and_figures_and_repeats_little():
    text = Writer("mix").text(200_000)
    assert re.search(r"def \w+\(", text)
    assert re.search(r"static int \w+", text)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3} (INFO|WARN)", text)
    words = re.findall(r"[A-Za-z]+", text)
    assert len(set(words)) > 800
    lines = [line for line in text.splitlines() if len(line) > 80]
    assert len(set(lines)) > 0.98 * len(lines)


def test_digits_are_digits():
    assert re.fullmatch(r"[0-9]{500}", write("digits", "x", 500))
