"""MLA: prefill attention over an expanded history, and decode over both cache layouts."""

from __future__ import annotations

import numpy as np

from mindnano import kernels
from mindnano.bench.operations.base import Compared, Operation, Timed, copies, normal, random_matrix, turns
from mindnano.kernels import ExpandedKV, HeadHistory, LatentKV, Matrix, packing
from mindnano.kernels.reference import linear as linear_twin
from mindnano.kernels.reference import mla as twin

HEADS, NOPE, ROPE, VALUE, RANK = 16, 128, 64, 128, 512
KEY = NOPE + ROPE
SCALE = KEY**-0.5
DTYPES = {"fp32": np.float32, "bf16": np.uint16, "fp16": np.uint16, "int8": np.int8}


def _floats(rng: np.random.Generator, fmt: str, *shape: int) -> np.ndarray:  # type: ignore[type-arg]
    """Values of about unit size as a cache keeps them (int8: without scales). One block of rows, repeated: only speed
    is asked of it."""
    block = normal(rng, min(shape[-2], 512), shape[-1])
    kept = twin.quantize(block)[0] if fmt == "int8" else twin.store(fmt, block)
    out = np.empty(shape, DTYPES[fmt])
    flat = out.reshape(-1, shape[-1])
    for i in range(0, len(flat), len(kept)):
        flat[i : i + len(kept)] = kept[: len(flat) - i]
    return out


def _latent(rng: np.random.Generator, fmt: str, length: int) -> tuple[LatentKV, int]:
    arrays = (
        _floats(rng, fmt, length, RANK),
        np.full((length, RANK // 128), 0.02, np.float32) if fmt == "int8" else None,
        _floats(rng, "bf16" if fmt == "int8" else fmt, length, ROPE),
    )
    return LatentKV(fmt, *arrays), sum(a.nbytes for a in arrays if a is not None)


def _expanded(rng: np.random.Generator, fmt: str, length: int) -> tuple[ExpandedKV, int]:
    arrays = [_floats(rng, fmt, HEADS, length, KEY), _floats(rng, fmt, HEADS, length, VALUE)]
    if fmt == "int8":
        arrays += [np.full((HEADS, length), 0.02, np.float32) for _ in range(2)]
    return ExpandedKV(fmt, *arrays), sum(a.nbytes for a in arrays)


def _small_latent(rng: np.random.Generator, fmt: str, length: int) -> tuple[LatentKV, list[np.ndarray]]:  # type: ignore[type-arg]
    """A view, and [latent, rope] as floats, or [int8, scales, rope]."""
    c, rope = normal(rng, length, RANK), normal(rng, length, ROPE)
    kept = "bf16" if fmt == "int8" else fmt
    r = twin.store(kept, rope)
    if fmt == "int8":
        q, scales = twin.quantize_latent(c)
        return LatentKV(fmt, q, scales, r), [q, scales, twin.load(kept, r)]
    stored = twin.store(fmt, c)
    return LatentKV(fmt, stored, None, r), [twin.load(fmt, stored), twin.load(kept, r)]


def decode_latent(fmt: str, length: int, target: float | None = None) -> Operation:
    """One token, absorbed: 16 heads against a latent that is read once."""

    def timed(rng: np.random.Generator) -> Timed:
        first, nbytes = _latent(rng, fmt, length)
        views = [first] + [_latent(rng, fmt, length)[0] for _ in range(copies(nbytes, at_most=6) - 1)]
        q, rope = normal(rng, 1, HEADS, RANK) / 8, normal(rng, 1, HEADS, ROPE)
        out, lengths, order = np.empty_like(q), np.array([length]), turns(len(views))
        return Timed(
            lambda: kernels.mla_decode_latent(q, rope, [views[next(order)]], lengths, SCALE, out),
            2.0 * HEADS * (2 * RANK + ROPE) * length, nbytes,
        )  # fmt: skip

    def compared(rng: np.random.Generator) -> list[Compared]:
        results = []
        for n in (1, 700):
            view, parts = _small_latent(rng, fmt, n)
            q, rope = normal(rng, 1, HEADS, RANK) / 8, normal(rng, 1, HEADS, ROPE)
            out = np.full_like(q, np.nan)
            kernels.mla_decode_latent(q, rope, [view], np.array([n]), SCALE, out)
            if fmt == "int8":
                want = twin.decode_latent_int8(q[0], rope[0], (parts[0], parts[1]), parts[2], SCALE)
            else:
                want = twin.decode_latent(q[0], rope[0], parts[0], parts[1], SCALE)
            # int8: an e^x that rounds the other way may move a P by 1 of 127.
            results.append(Compared(f"{n} keys", out[0], want, 2e-3 if fmt == "int8" else 4e-6))
        return results

    limit = "int8" if fmt == "int8" else "fma"
    return Operation(f"MLA decode latent {fmt}, {length // 1024}K", limit, timed, compared, target)


def decode_expanded(fmt: str, length: int) -> Operation:
    """One token against every head's own K and V: bound by reading them."""

    def timed(rng: np.random.Generator) -> Timed:
        first, nbytes = _expanded(rng, fmt, length)
        views = [first] + [_expanded(rng, fmt, length)[0] for _ in range(copies(nbytes, at_most=6) - 1)]
        q = normal(rng, 1, HEADS, KEY)
        out, lengths, order = np.empty((1, HEADS, VALUE), np.float32), np.array([length]), turns(len(views))
        return Timed(
            lambda: kernels.mla_decode_expanded(q, [views[next(order)]], lengths, SCALE, out),
            2.0 * HEADS * (KEY + VALUE) * length, nbytes,
        )  # fmt: skip

    def compared(rng: np.random.Generator) -> list[Compared]:
        n = 300
        k, v, q = normal(rng, HEADS, n, KEY), normal(rng, HEADS, n, VALUE), normal(rng, 1, HEADS, KEY)
        out = np.full((1, HEADS, VALUE), np.nan, np.float32)
        if fmt == "int8":
            (kq, ks), (vq, vs) = twin.quantize(k), twin.quantize(v)
            view = ExpandedKV(fmt, kq, vq, ks, vs)
            k, v = kq * ks[..., None], vq * vs[..., None]
        else:
            kept = [twin.store(fmt, x) for x in (k, v)]
            view = ExpandedKV(fmt, *kept)
            k, v = (twin.load(fmt, x) for x in kept)
        kernels.mla_decode_expanded(q, [view], np.array([n]), SCALE, out)
        return [Compared(f"{n} keys", out, twin.attend(q, k, v, n - 1, SCALE), 4e-6)]

    return Operation(f"MLA decode expanded {fmt}, {length // 1024}K", "read", timed, compared)


def prefill(fmt: str, queries: int, history: int, target: float | None = None) -> Operation:
    """The last `queries` tokens of a prompt against the `history` before them and each other, for as many of the 16
    heads as there are threads: the model takes the heads in such groups."""

    def timed(rng: np.random.Generator) -> Timed:
        group, length = min(HEADS, kernels.threads()), history + queries
        view, nbytes = _latent(rng, fmt, length)
        kv_b = random_matrix(rng, 8, HEADS * (NOPE + VALUE), RANK)
        scratch = HeadHistory(fmt, HEADS, NOPE, ROPE, VALUE)
        scratch.load_latent(view, length, 0, group, kv_b)
        q, out = normal(rng, queries, HEADS, KEY), np.empty((queries, HEADS, VALUE), np.float32)
        pairs = queries * (history + (queries + 1) / 2)
        return Timed(
            lambda: scratch.attend(q, history, 0, queries, SCALE, out),
            2.0 * group * (KEY + VALUE) * pairs, nbytes,
        )  # fmt: skip

    def compared(rng: np.random.Generator) -> list[Compared]:
        start, tokens, heads = 530, 50, 2
        k, v = normal(rng, heads, start + tokens, KEY), normal(rng, heads, start + tokens, VALUE)
        q, out = normal(rng, tokens, heads, KEY), np.full((tokens, heads, VALUE), np.nan, np.float32)
        scratch = HeadHistory(fmt, heads, NOPE, ROPE, VALUE)
        if fmt == "int8":
            kq, vq = twin.quantize(k), twin.quantize(v)
            view, want = (
                ExpandedKV(fmt, kq[0], vq[0], kq[1], vq[1]),
                twin.attend_int8(q, kq, vq, start, SCALE),
            )
        else:
            kept = [twin.store(fmt, x) for x in (k, v)]
            view = ExpandedKV(fmt, *kept)
            want = twin.attend(q, *(twin.load(fmt, x) for x in kept), start, SCALE)
        scratch.load_expanded(view, start + tokens, 0, heads)
        scratch.attend(q, start, 0, tokens, SCALE, out)
        return [Compared(f"{tokens} on {start}", out, want, 2e-3 if fmt == "int8" else 4e-6)]

    limit = "int8" if fmt == "int8" else "fma"
    name = f"MLA prefill {fmt}, {queries} on {history // 1024}K"
    return Operation(name, limit, timed, compared, target)


def expand(fmt: str, length: int) -> Operation:
    """K and V of a group of heads from the latent: once a block of prefill."""

    def timed(rng: np.random.Generator) -> Timed:
        group = min(HEADS, kernels.threads())
        view, nbytes = _latent(rng, fmt, length)
        kv_b = random_matrix(rng, 8, HEADS * (NOPE + VALUE), RANK)
        scratch = HeadHistory(fmt, HEADS, NOPE, ROPE, VALUE)
        return Timed(
            lambda: scratch.load_latent(view, length, 0, group, kv_b),
            2.0 * group * (NOPE + VALUE) * RANK * length, nbytes,
        )  # fmt: skip

    def compared(rng: np.random.Generator) -> list[Compared]:
        """Seen through attention: expanding by the kernel against expanding by the twin."""
        heads, n = 2, 90
        view, parts = _small_latent(rng, fmt, n)
        latent = twin.dequantize_latent(parts[0], parts[1]) if fmt == "int8" else parts[0]
        values, scales = linear_twin.quantize_w8(normal(rng, heads * (NOPE + VALUE), RANK))
        scales /= np.float32(np.sqrt(RANK))
        kv_b = Matrix.w8(*packing.pack_w8(values, scales), len(values), RANK)
        k, v = twin.expand(latent, parts[-1], values * scales[:, None], heads, VALUE)
        q, out = normal(rng, n, heads, KEY), np.full((n, heads, VALUE), np.nan, np.float32)
        scratch = HeadHistory(fmt, heads, NOPE, ROPE, VALUE)
        scratch.load_latent(view, n, 0, heads, kv_b)
        scratch.attend(q, 0, 0, n, SCALE, out)
        # The latent goes through int8 products and K and V through the cache's rounding: formats, not errors.
        return [Compared(f"{n} rows", out, twin.attend(q, k, v, 0, SCALE), 0.05)]

    return Operation(f"MLA expand {fmt}, {length // 1024}K", "int8", timed, compared)


OPERATIONS = [
    prefill("int8", 4096, 16384, 0.55),
    prefill("int8", 4096, 32768, 0.55),
    prefill("bf16", 4096, 16384, 0.70),
    prefill("bf16", 4096, 32768, 0.70),
    expand("int8", 32768),
    expand("bf16", 32768),
    *(decode_latent("int8", n, 0.50 if n > 4096 else None) for n in (4096, 32768)),
    *(decode_latent(fmt, n) for fmt in ("bf16", "fp16") for n in (4096, 32768)),
    *(decode_expanded(fmt, n) for fmt in ("int8", "bf16") for n in (4096, 32768)),
]
