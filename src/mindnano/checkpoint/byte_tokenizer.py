"""A tokenizer for models that have none: a token a byte, Ling's special tokens, made-up words."""

from __future__ import annotations

import json

from mindnano.checkpoint.config import ModelConfig
from mindnano.errors import MindNanoError
from mindnano.tokenizer.ling import TEMPLATE as CHAT_TEMPLATE

__all__ = ["CHAT_TEMPLATE", "build", "byte_characters", "special_tokens"]

START, END, ROLE_END = "<|startoftext|>", "<|endoftext|>", "<|role_end|>"
_SYLLABLES = [c + v for c in "bdfghjklmnprstvz" for v in "aeiou"]


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each byte (GPT-2's table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(moved)) for b in range(256)]


def special_tokens(config: ModelConfig) -> dict[str, int]:
    """Ling's three special tokens at the configuration's ids; where it has none, at the vocabulary's end."""
    ids = {
        START: config.bos_token_id,
        END: config.pad_token_id,
        ROLE_END: config.eos_token_ids[0] if config.eos_token_ids else None,
    }
    found: dict[str, int] = {}
    free = iter(range(config.vocab_size - 1, 255, -1))
    taken = {i for i in ids.values() if i is not None}
    for name, token in ids.items():
        if token is None or token < 256 or token in found.values():
            token = next((i for i in free if i not in taken), None)
            if token is None:
                raise MindNanoError(
                    f"vocab_size is {config.vocab_size}, expected 259 or more: bytes and special tokens"
                )
            taken.add(token)
        found[name] = token
    return found


def build(config: ModelConfig) -> bytes:
    """A `tokenizer.json` for the whole vocabulary. Every byte is a token, so any text can be encoded;
    ids that encoding never yields decode to made-up words, harmless to print."""
    special = special_tokens(config)
    names = {token: name for name, token in special.items()}
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    for token in range(256, config.vocab_size):
        vocabulary[names.get(token) or "\u0120" + _word(token - 256)] = token
    added = [
        {
            "id": token,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name, token in sorted(special.items(), key=lambda entry: entry[1])
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    whole: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _word(number: int) -> str:
    """Different made-up words for different numbers: two syllables and more."""
    base, word = len(_SYLLABLES), ""
    while True:
        number, rest = divmod(number, base)
        word += _SYLLABLES[rest]
        if number == 0 and len(word) > 2:
            return word
