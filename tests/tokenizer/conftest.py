import dataclasses
import json

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from mindnano.checkpoint import tiny
from mindnano.tokenizer import Tokenizer

# Ling's pre-split pattern.
PATTERN = "|".join(
    (
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*",
        r"\s*[\r\n]|\s+(?!\S)|\s+",
    )
)
SPECIAL = ["<|startoftext|>", "<|endoftext|>", "<|role_end|>", "<role>", "</role>"]
TEXT = [
    "The small machine read the long input, and the input was long.",
    "小机器读了很长的输入。Größe, naïve, déjà vu — 🙂🙃 1234567890",
    "def f(x):\n    return {'a': x ** 2}  # ok\r\n\t\n",
] * 20


def trained(added=("<think>", "</think>")):
    """A byte-level BPE tokenizer of Ling's make: merges, special tokens, added tokens that aren't special."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
        ),
    )
    backend.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in added])
    return backend


@pytest.fixture(scope="session")
def backend():
    return trained()


@pytest.fixture(scope="session")
def config(backend):
    ids = {"bos_token_id": 0, "eos_token_ids": (2,), "pad_token_id": 1}
    return dataclasses.replace(tiny.config(), vocab_size=backend.get_vocab_size() + 10, **ids)


@pytest.fixture(scope="session")
def tokenizer(backend, config):
    return Tokenizer(backend.to_str().encode(), config)


@pytest.fixture
def spec(backend):
    return json.loads(backend.to_str())
