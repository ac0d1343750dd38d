"""A byte-level BPE tokenizer read from a checkpoint's tokenizer.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as Backend

from mindnano.checkpoint.config import ModelConfig
from mindnano.errors import MindNanoError, shorten

_MOST_BYTES = 64 << 20
GUARD = "\ue000"  # put after the first character of a special token's text that is to stay plain text


def _byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE writes bytes as (GPT-2): printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


class Tokenizer:
    """Text to ids and back. Raises MindNanoError for a tokenizer that is missing, damaged or no byte-level BPE."""

    def __init__(self, data: bytes | None, config: ModelConfig) -> None:
        if data is None:
            raise MindNanoError("tokenizer.json: missing from the model; put it beside config.json")
        if len(data) > _MOST_BYTES:
            raise MindNanoError(f"tokenizer.json: {len(data)} bytes, expected at most {_MOST_BYTES}")
        try:
            self._backend = Backend.from_str(data.decode("utf-8"))
            spec = json.loads(data)
        except Exception as error:  # the library raises bare Exception
            raise MindNanoError(f"tokenizer.json: can't be read ({shorten(str(error))})") from None
        decoder = spec.get("decoder") or {}
        kinds = {decoder.get("type"), *(d.get("type") for d in decoder.get("decoders", []) if isinstance(d, dict))}
        if "ByteLevel" not in kinds:
            raise MindNanoError(f"tokenizer.json: decoder is {shorten(decoder.get('type'))}, supported is ByteLevel")
        self._special: dict[int, str] = {}
        self._added: dict[int, bytes] = {}
        for token, added in self._backend.get_added_tokens_decoder().items():
            self._added[token] = added.content.encode("utf-8")
            if added.special:
                self._special[token] = added.content
        self._alphabet = _byte_alphabet()
        self._bytes: dict[int, bytes] = {}
        self.size = self._backend.get_vocab_size(with_added_tokens=True)
        largest = max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= config.vocab_size:
            raise MindNanoError(
                f"tokenizer.json: has token {largest}, the model's vocabulary ends at {config.vocab_size - 1}"
            )
        self.eos_token_ids = tuple(token for token in config.eos_token_ids if token < config.vocab_size)
        names = sorted(self._special.values(), key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, names))) if names else None
        guarded = [f"{name[0]}{GUARD}{name[1:]}" for name in names]
        self._guarded_pattern = re.compile("(" + "|".join(map(re.escape, guarded)) + ")") if names else None

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of `text`. `special`: the text of a special token becomes that token; else it stays text.

        Text that went through `guard` stays text in either case.
        """
        if not special:
            return self._plain(text)
        if self._guarded_pattern is None or GUARD not in text:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        for i, part in enumerate(self._guarded_pattern.split(text)):
            if i % 2:
                ids += self._plain(part.replace(GUARD, "", 1))
            elif part:
                ids += self._backend.encode(part, add_special_tokens=False).ids
        return ids

    def guard(self, text: str) -> str:
        """`text` with every special token's text marked to stay text: what a user wrote can't end their turn."""
        if self._special_pattern is None:
            return text
        return self._special_pattern.sub(lambda m: f"{m[0][0]}{GUARD}{m[0][1:]}", text)

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of `ids`; bytes that aren't UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(token, skip_special) for token in ids).decode("utf-8", "replace")

    def token_bytes(self, token: int, skip_special: bool = True) -> bytes:
        """The bytes that a token stands for: none for special tokens if they are skipped, and for unknown ids."""
        if token in self._special:
            return b"" if skip_special else self._added[token]
        known = self._bytes.get(token)
        if known is None:
            known = self._added.get(token)
            if known is None:
                text = self._backend.id_to_token(token) or ""
                known = b"".join(
                    bytes([self._alphabet[c]]) if c in self._alphabet else c.encode("utf-8", "replace") for c in text
                )
            self._bytes[token] = known
        return known

    def special_id(self, text: str) -> int | None:
        """The id of a special token by its text."""
        return next((token for token, content in self._special.items() if content == text), None)

    def _plain(self, text: str) -> list[int]:
        before = self._backend.encode_special_tokens
        self._backend.encode_special_tokens = True
        try:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        finally:
            self._backend.encode_special_tokens = before


def check_text(messages: Sequence[object]) -> None:
    """Raises MindNanoError for text that isn't valid Unicode (lone surrogates), which no tokenizer can take."""
    for message in messages:
        if isinstance(message, str):
            try:
                message.encode("utf-8")
            except UnicodeEncodeError as error:
                raise MindNanoError(f"text: not valid Unicode at character {error.start}") from None
