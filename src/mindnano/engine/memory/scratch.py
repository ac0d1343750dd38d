"""What passes through a layer: the workspaces' arrays, the expanded history, the kernels' own scratch.

Mirrors the shapes in `model` and in `native/kernels`; tests/engine/test_scratch.py holds it against what they take.
"""

from __future__ import annotations

from collections.abc import Iterator

from mindnano.checkpoint.config import ModelConfig
from mindnano.model.decoder import ATTENTION_TILE, EXPERT_TILE

_KEY_TILE = 512  # keys of a tile of the expanded history
_CHUNK_KEYS = 512  # keys of a task of decode attention
_LANES = 8  # heads that decode attention takes together


def prefill_bytes(config: ModelConfig, layout: str, block: int, dense: bool) -> int:
    """The workspace of a prefill in blocks of `block` tokens, and the experts' hidden rows. `dense`: weights that
    aren't quantized."""
    tile, expert_rows = min(block, ATTENTION_TILE), min(block, EXPERT_TILE)
    total = 4 * block * config.hidden_size + _activations(expert_rows, config.hidden_size, dense)
    total += 4 * config.vocab_size
    if "kda" in config.layer_types:
        total += sum(_kda(config, tile, dense))
    if "mla" in config.layer_types:
        mla = config.mla
        total += 4 * block * mla.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim)
        total += sum(_mla(config, layout, tile, dense))
        total += 0 if dense else _quantized(tile, mla.num_heads * mla.v_head_dim)
    return total + sum(_experts(config, expert_rows, dense))


def decode_bytes(config: ModelConfig, layout: str, slots: int, dense: bool) -> int:
    """The workspace of a decode step of `slots` sequences."""
    total = 4 * slots * (config.hidden_size + config.vocab_size) + _activations(
        slots, config.hidden_size, dense
    )
    if "kda" in config.layer_types:
        total += sum(_kda(config, slots, dense))
    if "mla" in config.layer_types:
        mla = config.mla
        query = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        total += 4 * slots * mla.num_heads * query + sum(_mla(config, layout, slots, dense))
        total += _activations(slots, mla.num_heads * mla.v_head_dim, dense)
        if layout == "latent":
            rows = slots * mla.num_heads
            total += 4 * rows * (query + mla.kv_lora_rank)
            total += _activations(rows, mla.kv_lora_rank, dense)
            total += 0 if dense else _quantized(rows, mla.qk_nope_head_dim)
    return total


def history_bytes(config: ModelConfig, fmt: str, threads: int, length: int, dense: bool) -> int:
    """K and V of the heads that are attended together, expanded, for `length` tokens."""
    if "mla" not in config.layer_types:
        return 0
    mla, heads = config.mla, min(config.mla.num_heads, threads)
    values = mla.qk_nope_head_dim + mla.qk_rope_head_dim + -(-mla.v_head_dim // 16) * 16
    tile = _KEY_TILE * (values * {"int8": 1, "fp32": 4}.get(fmt, 2) + (8 if fmt == "int8" else 0))
    panels = -(-mla.qk_nope_head_dim // 16) + -(-mla.v_head_dim // 16)
    opened = heads * panels * mla.kv_lora_rank * 64 if dense else 0
    return heads * -(-length // _KEY_TILE) * tile + opened


def partials_bytes(config: ModelConfig, layout: str, slots: int, length: int) -> int:
    """What decode attention's tasks leave for each other: an output of every head for each stretch of keys."""
    if "mla" not in config.layer_types:
        return 0
    mla, chunks = config.mla, slots * -(-length // _CHUNK_KEYS)
    if layout == "expanded":
        return 4 * chunks * mla.num_heads * (mla.v_head_dim + 2)
    return 4 * chunks * -(-mla.num_heads // _LANES) * _LANES * (mla.kv_lora_rank + 2)


def _activations(rows: int, width: int, dense: bool) -> int:
    """fp32 rows, and their INT8 form where weights are quantized."""
    return 4 * rows * width + (0 if dense else _quantized(rows, width))


def _quantized(rows: int, width: int) -> int:
    padded = -(-width // 32) * 32
    return rows * (padded + 4 * -(-padded // 128) + padded // 8)


def _kda(config: ModelConfig, rows: int, dense: bool) -> Iterator[int]:
    kda = config.kda
    width = kda.num_heads * kda.head_dim
    yield 4 * rows * (3 * width + 2 * (kda.head_dim if kda.low_rank else width) + 2 * kda.num_heads)
    yield 4 * rows * 5 * width + _activations(rows, width, dense)  # q, k, v, decay, o; normed
    if kda.low_rank:
        yield 4 * rows * 2 * width + 2 * _activations(rows, kda.head_dim, dense)


def _mla(config: ModelConfig, layout: str, rows: int, dense: bool) -> Iterator[int]:
    mla = config.mla
    query = mla.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    yield 4 * rows * ((mla.q_lora_rank or query) + mla.kv_lora_rank + mla.qk_rope_head_dim)
    if mla.q_lora_rank:
        yield _activations(rows, mla.q_lora_rank, dense)
    if mla.head_gate:
        yield 4 * rows * mla.num_heads
    if layout == "expanded":
        yield _activations(rows, mla.kv_lora_rank, dense) + 4 * rows * mla.qk_rope_head_dim
        yield 4 * rows * mla.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)


def _experts(config: ModelConfig, rows: int, dense: bool) -> Iterator[int]:
    moe = config.moe
    hidden = []
    if moe is not None:
        yield 4 * rows * (moe.num_experts + 2 * moe.top_k)
        hidden.append(_hidden(rows * moe.top_k, moe.intermediate_size, dense))
    if config.first_k_dense or moe is None:
        hidden.append(_hidden(rows, config.dense_intermediate_size, dense))
    if moe is not None and moe.shared_intermediate_size:
        hidden.append(_hidden(rows, moe.shared_intermediate_size, dense))
    if config.first_k_dense or (moe is not None and moe.shared_intermediate_size):
        yield 8 * rows
    yield max(hidden)


def _hidden(pairs: int, width: int, dense: bool) -> int:
    """The hidden rows of (token, expert) pairs."""
    return 4 * pairs * width if dense else _quantized(pairs, width)
