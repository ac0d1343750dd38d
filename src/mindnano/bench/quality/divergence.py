"""Teacher-forced KL divergence: the same text through both, and how far apart what they expect next is.

At each length the text before it is read as a prompt, and its last positions one token at a time, as an answer is
computed: there the cache's error counts in full. One pass through a segment serves all lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from mindnano.bench.load import now
from mindnano.bench.prompts import exact
from mindnano.bench.quality.variants import Reader, facts, label, log_softmax
from mindnano.bench.records import Divergence
from mindnano.engine.llm import LLM
from mindnano.errors import MindNanoError
from mindnano.textfile import read_text

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
POSITIONS = 32  # judged before each length
MOST_TEXT = 64 << 20  # bytes of a text file


def compare(
    yardstick: LLM,
    others: Sequence[LLM],
    tokens: Sequence[int],
    lengths: Sequence[int],
    positions: int,
    source: str,
    sample: int,
) -> Iterator[Divergence]:
    """One segment through all models, step by step: a record for each model and length that the segment reaches."""
    with ExitStack() as stack:
        wanted, readers = Reader(yardstick, stack), [Reader(llm, stack) for llm in others]
        for length in sorted(lengths):
            if length > len(tokens):
                return
            start = max(length - positions, wanted.length)
            for reader in (wanted, *readers):
                reader.read(tokens[reader.length : start])
            found = [
                Divergence(
                    **facts(llm),
                    against=label(yardstick),
                    source=source,
                    sample=sample,
                    length=length,
                    at=now(),
                )
                for llm in others
            ]
            for token in tokens[start:length]:
                p = log_softmax(wanted.next(token))
                for reader, record in zip(readers, found, strict=True):
                    q = log_softmax(reader.next(token))
                    # Never below zero but by rounding.
                    record.kl.append(max(0.0, float(np.dot(np.exp(p), p - q))))
                    record.same_top.append(int(p.argmax() == q.argmax()))
            yield from found


def segments(
    llm: LLM, files: Sequence[Path], count: int, tokens: int, seed: str
) -> tuple[str, list[list[int]]]:
    """Where the text comes from, and `count` segments of it: of local files at even distances, or written from a seed.

    Raises MindNanoError where the files are too short for that many that don't overlap.
    """
    if files:
        return _from_files(llm, files, count, tokens)
    if not llm.tokenizer.available:
        from mindnano.bench.depth import zipf_tokens

        return f"random tokens, seed {seed}", [
            zipf_tokens(llm.config.vocab_size, tokens, seed=hash_of(f"{seed} {at}")) for at in range(count)
        ]
    encode = llm.tokenizer.encode
    return f"generated text, seed {seed}", [
        encode(exact("text", f"{seed} segment {at}", tokens, _counter(llm)).text)[:tokens]
        for at in range(count)
    ]


def hash_of(text: str) -> int:
    """A seed for NumPy from a text, the same on every machine."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little")


def _counter(llm: LLM) -> Callable[[str], int]:
    return lambda text: len(llm.tokenizer.encode(text))


def _from_files(llm: LLM, files: Sequence[Path], count: int, tokens: int) -> tuple[str, list[list[int]]]:
    whole: list[int] = []
    for path in files:
        whole += llm.tokenizer.encode(read_text(path, MOST_TEXT, "--text"))
    if len(whole) < count * tokens:
        raise MindNanoError(
            f"--text: {len(whole)} tokens in all, expected {count} segments of {tokens}; give more text, fewer "
            "--segments or smaller --lengths"
        )
    stride = (len(whole) - tokens) // max(1, count - 1) if count > 1 else 0
    names = ", ".join(path.name for path in files)
    return names, [whole[at * stride : at * stride + tokens] for at in range(count)]
