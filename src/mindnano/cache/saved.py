"""A session file's sections as checkpoints of this engine: what they must be, and bringing them into memory."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from mindnano.cache.copies import Rows, StateCopy, row_shapes, state_shapes
from mindnano.cache.prefix import Piece, PieceShape
from mindnano.cache.slots import SlotPool
from mindnano.cache.snapshot import Section, SessionFile
from mindnano.errors import MindNanoError


class SavedPieces:
    """The checkpoints of an open session file, wholly verified when this is made; nothing is kept of them yet."""

    def __init__(self, file: SessionFile, pool: SlotPool) -> None:
        self.file, self.pool = file, pool
        self._parts = self._grouped()
        self._tokens = [self._piece_tokens(parts) for parts in self._parts]
        self.shapes = self._checked_shapes()
        for section in file.header.sections:
            file.verify(section)

    def __enter__(self) -> SavedPieces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def read(self, count: int, inner: bool) -> list[Piece]:
        """The first `count` pieces; the states of those before the last only where `inner` is set."""
        pieces = []
        for i, (parts, tokens, shape) in enumerate(
            zip(self._parts[:count], self._tokens, self.shapes, strict=False)
        ):
            rows = Rows(self.pool, len(tokens))
            for name, array in rows.arrays.items():
                self.file.read(parts[f"rows.{name}"], array)
            states = None
            if shape.states and (inner or i == count - 1):
                states = StateCopy(self.pool, shape.logits)
                for name, array in states.arrays.items():
                    self.file.read(parts[f"states.{name}"], array)
            pieces.append(Piece(tokens, shape.end - len(tokens), rows, states))
        return pieces

    def _grouped(self) -> list[dict[str, Section]]:
        """Sections by piece: their names are "number.part"."""
        grouped: list[dict[str, Section]] = []
        for section in self.file.header.sections:
            number, _, part = section.name.partition(".")
            if number == str(len(grouped)):
                grouped.append({})
            elif number != str(len(grouped) - 1):
                raise self._wrong(f"section {section.name!r} is out of order")
            if part in grouped[-1]:
                raise self._wrong(f"section {section.name!r} appears twice")
            grouped[-1][part] = section
        if not grouped:
            raise self._wrong("holds no tokens")
        return grouped

    def _piece_tokens(self, parts: dict[str, Section]) -> np.ndarray:
        section = parts.get("tokens")
        if section is None or section.dtype != "int64" or len(section.shape) != 1 or not section.shape[0]:
            raise self._wrong("its tokens are not a list of ids")
        if section.shape[0] > self.file.header.tokens:
            raise self._wrong(f"holds more than the {self.file.header.tokens} tokens that its header says")
        tokens = np.empty(section.shape, np.int64)
        self.file.read(section, tokens)
        if tokens.min() < 0 or tokens.max() >= self.pool.config.vocab_size:
            raise self._wrong("its tokens are not ids of this model's vocabulary")
        return tokens

    def _checked_shapes(self) -> list[PieceShape]:
        """Every section's shape and dtype held against what this engine would have made."""
        shapes, end = [], 0
        for i, (parts, tokens) in enumerate(zip(self._parts, self._tokens, strict=True)):
            end += len(tokens)
            logits = "states.logits" in parts
            states = any(part.startswith("states.") for part in parts)
            wanted: dict[str, tuple[tuple[int, ...], Any]] = {"tokens": (tokens.shape, tokens.dtype)}
            wanted |= {f"rows.{name}": shape for name, shape in row_shapes(self.pool, len(tokens)).items()}
            if states:
                wanted |= {f"states.{name}": shape for name, shape in state_shapes(self.pool, logits).items()}
            for part, (shape, dtype) in wanted.items():
                found = parts.get(part)
                if found is None or tuple(found.shape) != shape or found.dtype != dtype.name:
                    have = "missing" if found is None else f"{found.dtype} {found.shape}"
                    raise self._wrong(f"section '{i}.{part}' is {have}, expected {dtype.name} {list(shape)}")
            if len(parts) > len(wanted):
                raise self._wrong(f"piece {i} has sections that this model has no use for")
            shapes.append(PieceShape(end, states, logits))
        if end != self.file.header.tokens:
            raise self._wrong(f"holds {end} tokens, its header says {self.file.header.tokens}")
        if end > self.pool.capacity:
            raise self._wrong(
                f"holds {end} tokens, more than this engine's context of {self.pool.capacity}; raise --ctx"
            )
        return shapes

    def _wrong(self, text: str) -> MindNanoError:
        return MindNanoError(f"{self.file.what}: {text}")
