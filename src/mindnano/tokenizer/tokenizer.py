"""Byte-level BPE from a `tokenizer.json`."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tokenizers

from mindnano.errors import MindNanoError, shorten

if TYPE_CHECKING:
    from mindnano.checkpoint.config import ModelConfig

# Special tokens that end an answer in the families we read, beside those that the configuration names.
END_TOKENS = ("<|role_end|>", "<|endoftext|>", "<|im_end|>", "[EOS]")
# A Unicode noncharacter, put after each character of what looks like a special token but came from a user.
SHIELD = "\ufdd0"


class Tokenizer:
    """Encodes text and decodes ids; safe to use from several threads.

    Special tokens (`"special": true` in the file) are recognised in text only where asked for. Nothing is
    added to what is encoded, not even a BOS. Raises MindNanoError for a file that isn't byte-level BPE or
    doesn't belong to the model. Without a file (data None) ids decode to nothing and encoding is an error.
    """

    def __init__(self, data: bytes | None, config: ModelConfig) -> None:
        self.vocab_size, self.bos_token_id = config.vocab_size, config.bos_token_id
        self.data = data
        self._lock = threading.Lock()
        self._bytes: dict[int, bytes] = {}
        self._tokenizer: tokenizers.Tokenizer | None = None
        self.special_tokens: dict[str, int] = {}
        if data is not None:
            self._tokenizer = _load(data)
            self.special_tokens = self._check_added()
        self._special_ids = frozenset(self.special_tokens.values())
        ends = (self.special_tokens[name] for name in END_TOKENS if name in self.special_tokens)
        self.eos_token_ids = tuple(dict.fromkeys((*config.eos_token_ids, *ends)))
        names = "|".join(re.escape(name) for name in sorted(self.special_tokens, key=len, reverse=True))
        self._special = re.compile(names or r"(?!)")
        self._meant = re.compile(f"({names or '(?!)'})(?!{SHIELD})")

    @property
    def available(self) -> bool:
        """Whether the model came with a tokenizer; without one, prompts have to be token ids."""
        return self._tokenizer is not None

    def _check_added(self) -> dict[str, int]:
        """Special tokens by content, after checking that the vocabulary fits the model's."""
        assert self._tokenizer is not None
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        added = self._tokenizer.get_added_tokens_decoder()
        largest = max(added, default=0)
        if size > self.vocab_size or largest >= self.vocab_size:
            raise MindNanoError(
                f"tokenizer.json: {size} tokens, ids up to {max(largest, size - 1)}, but the model has only "
                f"{self.vocab_size}; it belongs to another model"
            )
        return {token.content: number for number, token in sorted(added.items()) if token.special}

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids of `text`. special: whether special tokens written in it are meant as such."""
        if self._tokenizer is None:
            raise MindNanoError(
                "this model has no tokenizer.json, so it can't read text; give the prompt as token ids"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MindNanoError(
                f"text: a lone surrogate at character {error.start} is no Unicode text"
            ) from None
        with self._lock:
            self._tokenizer.encode_special_tokens = not special
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def shield(self, text: str) -> str:
        """Marks special tokens in text from outside, so that `encode_shielded` takes them as plain text."""
        return self._special.sub(lambda match: "".join(c + SHIELD for c in match[0]), unshield(text))

    def encode_shielded(self, text: str) -> list[int]:
        """Token ids of text with special tokens, except those that `shield` marked: they stay text."""
        if SHIELD not in text:
            return self.encode(text, special=True)
        tokens: list[int] = []
        for piece in self._meant.split(text):
            if piece in self.special_tokens:
                tokens.append(self.special_tokens[piece])
            elif piece:
                tokens += self.encode(unshield(piece), special=False)
        return tokens

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """What a token stands for: bytes, perhaps no whole character. Empty for ids it doesn't know."""
        if skip_special and token in self._special_ids:
            return b""
        found = self._bytes.get(token)
        if found is None:
            name = None if self._tokenizer is None or token < 0 else self._tokenizer.id_to_token(token)
            found = self._bytes[token] = b"" if name is None else _to_bytes(name)
        return found

    def decode(self, tokens: Iterable[int], skip_special: bool = True) -> str:
        """Text of token ids. Bytes that are no UTF-8 become U+FFFD, one for each maximal part as Unicode
        says.
        """
        return b"".join(self.token_bytes(t, skip_special) for t in tokens).decode("utf-8", "replace")


def unshield(text: str) -> str:
    return text.replace(SHIELD, "")


def _load(data: bytes) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the Rust library is no Exception
        raise MindNanoError(f"tokenizer.json: can't be read ({shorten(str(error), 200)})") from None
    decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder is not None else None
    if not _is_byte_level(decoder):
        raise MindNanoError(
            f"tokenizer.json: its decoder is {shorten(decoder and decoder.get('type'))}, expected ByteLevel "
            "(byte-level BPE)"
        )
    # Left on, these would cut prompts in silence or fill them up.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # The library's cache of words takes up to 12 MB beyond any plan, and isn't given back with the tokenizer (0.23).
    resize_cache = getattr(tokenizer.model, "_resize_cache", None)
    if resize_cache is not None:
        resize_cache(0)
    return tokenizer


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        parts = decoder.get("decoders") or []
        return bool(parts) and all(_is_byte_level(part) for part in parts)
    return decoder.get("type") == "ByteLevel"


def _byte_table() -> dict[str, int]:
    """GPT-2's printable characters for bytes (openai/gpt-2, encoder.py), the other way round."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = iter(range(256, 512))
    return {chr(byte) if byte in plain else chr(next(moved)): byte for byte in range(256)}


_BYTES = _byte_table()


def _to_bytes(name: str) -> bytes:
    """A token's bytes; one with a character outside the table (an added token) is text as it is."""
    try:
        return bytes([_BYTES[character] for character in name])
    except KeyError:
        return name.encode("utf-8")
