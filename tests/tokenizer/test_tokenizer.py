"""Encoding, decoding and its pieces, against the tokenizers library itself."""

import dataclasses
import json
import threading

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindnano.checkpoint import synthetic, tiny
from mindnano.errors import MindNanoError
from mindnano.tokenizer import IncrementalDecoder, Tokenizer
from tests.tokenizer.conftest import SPECIAL, TEXT

pieces = st.one_of(
    st.text(max_size=8), st.sampled_from([*SPECIAL, "<think>", "<|role", "_end|>", "é", " ", "\ufdd0"])
)
texts = st.lists(pieces, max_size=8).map("".join)


@given(texts)
@settings(max_examples=300, deadline=None)
def test_encoding_with_special_tokens_is_the_librarys(backend, tokenizer, text):
    assert tokenizer.encode(text, special=True) == backend.encode(text, add_special_tokens=False).ids


@given(texts)
@settings(max_examples=300, deadline=None)
def test_special_tokens_in_plain_text_stay_text(backend, tokenizer, text):
    ids = tokenizer.encode(text)
    assert not set(ids) & set(tokenizer.special_tokens.values())
    assert tokenizer.decode(ids) == backend.normalizer.normalize_str(text)


@given(texts, texts, texts)
@settings(max_examples=300, deadline=None)
def test_shielded_text_is_plain_and_the_rest_is_not(backend, tokenizer, before, inside, after):
    before, after = before.replace("\ufdd0", ""), after.replace("\ufdd0", "")
    ids = tokenizer.encode_shielded(f"{before}<role>{tokenizer.shield(inside)}</role>{after}")
    special = [i for i in ids if i in tokenizer.special_tokens.values()]
    meant = tokenizer.encode(f"{before}<role></role>{after}", special=True)
    assert special == [i for i in meant if i in tokenizer.special_tokens.values()]
    whole = f"{before}<role>{inside}</role>{after}".replace("\ufdd0", "")
    assert tokenizer.decode(ids, skip_special=False) == tokenizer.decode(
        tokenizer.encode(whole, special=True), skip_special=False
    )


def test_text_without_special_tokens_is_encoded_the_same_either_way(tokenizer):
    for text in TEXT[:3]:
        assert tokenizer.encode(text) == tokenizer.encode(text, special=True)
        assert tokenizer.encode_shielded(tokenizer.shield(text)) == tokenizer.encode(text)


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_pieces_join_to_the_whole(backend, tokenizer, data):
    """Random ids: invalid UTF-8 in every form, special tokens, ids that no token has."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    skip = data.draw(st.booleans())
    decoder = IncrementalDecoder(tokenizer, skip)
    shown = [decoder.push(token) for token in ids]
    text = "".join(shown) + decoder.finish()
    assert text == tokenizer.decode(ids, skip)
    assert text == backend.decode(ids, skip_special_tokens=skip)


def test_half_a_character_is_never_shown(tokenizer):
    ids = [token for byte in "é🙂語".encode() for token in tokenizer_bytes(tokenizer, byte)]
    decoder = IncrementalDecoder(tokenizer)
    assert [decoder.push(token) for token in ids] == ["", "é", "", "", "", "🙂", "", "", "語"]
    assert decoder.finish() == ""


def test_a_character_that_is_never_finished(tokenizer):
    decoder = IncrementalDecoder(tokenizer)
    ids = [token for byte in b"a\xf0\x9f\x99" for token in tokenizer_bytes(tokenizer, byte)]
    assert [decoder.push(token) for token in ids] == ["a", "", "", ""]
    assert decoder.finish() == "\ufffd" == tokenizer.decode(ids)[1:]


def tokenizer_bytes(tokenizer, byte):
    return [next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == bytes([byte]))]


def test_every_byte_has_a_token(tokenizer):
    assert {tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)} >= {bytes([b]) for b in range(256)}


def test_ends_are_the_configurations_and_the_well_known_ones(tokenizer):
    assert tokenizer.eos_token_ids == (2, tokenizer.special_tokens["<|endoftext|>"])


def test_truncation_and_padding_in_the_file_are_switched_off(backend, config):
    loud = type(backend).from_str(backend.to_str())
    loud.enable_truncation(4)
    loud.enable_padding(length=64)
    tokenizer = Tokenizer(loud.to_str().encode(), config)
    assert tokenizer.encode(TEXT[0]) == backend.encode(TEXT[0]).ids


def test_threads_dont_mix_the_two_ways_of_encoding(tokenizer):
    text, wrong = "a <|role_end|> b" * 20, []
    expected = {special: tokenizer.encode(text, special) for special in (True, False)}
    assert expected[True] != expected[False]

    def work(special):
        for _ in range(200):
            if tokenizer.encode(text, special) != expected[special]:
                wrong.append(special)

    threads = [threading.Thread(target=work, args=(special,)) for special in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_model_without_a_tokenizer_takes_ids_only(config):
    tokenizer = Tokenizer(None, config)
    assert not tokenizer.available
    assert tokenizer.decode([1, 2, 3]) == ""
    assert tokenizer.eos_token_ids == (2,)
    with pytest.raises(MindNanoError, match="no tokenizer"):
        tokenizer.encode("text")


def test_lone_surrogates_are_no_text(tokenizer):
    with pytest.raises(MindNanoError, match=r"surrogate at character 2"):
        tokenizer.encode("ab\ud800")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda spec: b"not json", "can't be read"),
        (lambda spec: b"\xff\xfe", "can't be read"),
        (lambda spec: b"{}", "can't be read"),
        (lambda spec: b"[" * 100_000, "can't be read"),
        (lambda spec: spec | {"decoder": None}, "ByteLevel"),
        (lambda spec: spec | {"decoder": {"type": "Fuse"}}, "Fuse.*ByteLevel"),
        (lambda spec: spec | {"model": {"type": "Unheard"}}, "can't be read"),
    ],
)
def test_bad_files_are_refused(spec, config, change, words):
    made = change(spec)
    data = made if isinstance(made, bytes) else json.dumps(made).encode()
    with pytest.raises(MindNanoError, match=words):
        Tokenizer(data, config)


def test_a_vocabulary_larger_than_the_models_is_refused(spec, config):
    with pytest.raises(MindNanoError, match="another model"):
        Tokenizer(json.dumps(spec).encode(), dataclasses.replace(config, vocab_size=200))


def test_words_leave_nothing_behind():
    """Thousands of new words, over tokenizers that come and go."""
    shape = tiny.config()
    data = synthetic.extras(shape).tokenizer_json

    def use(number):
        tokenizer = Tokenizer(data, shape)
        for word in range(6000):
            tokenizer.encode(f"w{number * 6000 + word}x")

    use(0)
    before = psutil.Process().memory_info().rss
    for number in range(1, 4):
        use(number)
    assert psutil.Process().memory_info().rss - before < 6 << 20  # 1.2 KB a word otherwise: 21 MB
