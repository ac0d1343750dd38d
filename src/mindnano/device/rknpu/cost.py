"""What this design should take on an RK3588 board, by arithmetic: a prediction until somebody measures.

Every number below has a mark: (m) measured and published by someone, (d) derived from such a number or from this
project's own measurements elsewhere, (g) guessed. Three boards span what the published numbers leave open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mindnano.cache.kv import kv_bytes_per_token
from mindnano.checkpoint import layout
from mindnano.checkpoint.config import MLAConfig, ModelConfig
from mindnano.device.rknpu.contexts import MOST_COLS, Shape, round_up
from mindnano.device.rknpu.linear import GROUP, ROWS
from mindnano.device.rknpu.npu import CORES

TILE_KEYS = 512
BLOCK = 4096  # tokens of a prefill block
CHUNKS = (512, 1024, 2048)  # query rows of a product: calibrating finds the best
W4_BYTES = 288 / 512  # of a weight: a panel's group of 16 x 32, with its scales


@dataclass(frozen=True)
class Board:
    """Rates in operations and bytes a second (a multiply-add is two operations), times in seconds.

    cpu_ops: INT8 products on four A76. cpu_flops: fp32. score_s: one score through softmax and back into rows, on
    four cores together. stream: weights and caches read from memory. npu_ops, npu_flops, npu_bytes: INT8, FP16 and
    traffic of one NPU core. cores: what three NPU cores do of one's work. submit_s, host_s: of each product, by the
    library and by Python. sync: bytes a second of cache maintenance. kda_s: one token of all KDA layers. step_s: of
    a decode step what is neither reading nor products.
    """

    name: str
    cpu_ops: float
    npu_ops: float
    npu_flops: float
    cores: float
    submit_s: float
    score_s: float
    host_s: float
    stream: float
    step_s: float
    cpu_flops: float = (
        70e9  # (d) half of 4 cores x 2.3 GHz x 16; in prefill this project's kernels reach more
    )
    npu_bytes: float = 9e9  # (m)
    sync: float = 10e9  # (g)
    kda_s: float = 1.0e-3  # (d) 0.73 ms on two Zen 3 cores, by the ratio of fp32 lanes and clocks


# (m) 0.3 TOPS in practice, 1.4 to 1.8 TOPS, 0.5 to 0.9 TFLOPS, three cores 1.4 to 2.3 times one, submit 0.2 to 0.4 ms.
# score_s (d): 3.5 cycles on Zen 3 with lanes twice as wide, so 7 on an A76 at 2.3 GHz. host_s (g). stream (d): the
# reference's 18.4 tok/s at 128 tokens times 0.95 GB of weights; copies reach 19 to 22 GB/s (m). step_s (g): 1.8 ms on
# Zen 3.
LIKELY = Board("likely", 0.30e12, 1.5e12, 0.7e12, 2.0, 0.3e-3, 0.76e-9, 0.15e-3, 17.5e9, 5e-3)
BETTER = Board("better", 0.36e12, 1.8e12, 0.9e12, 2.3, 0.2e-3, 0.6e-9, 0.10e-3, 19e9, 3e-3)
WORSE = Board("worse", 0.25e12, 1.4e12, 0.5e12, 1.4, 0.4e-3, 1.2e-9, 0.25e-3, 15e9, 8e-3)


def product_s(board: Board, shape: Shape) -> float:
    """One product on one core: submit, arithmetic, and its operands' and result's bytes."""
    ops = (
        2.0
        * shape.rows
        * shape.depth
        * shape.cols
        / (board.npu_ops if shape.format == "int8" else board.npu_flops)
    )
    return board.submit_s + ops + sum(shape.nbytes(operand) for operand in "ABC") / board.npu_bytes


def pairs(rows: int, start: int) -> int:
    """Of a query and a key that it sees: row t sees start + t + 1 keys."""
    return rows * start + rows * (rows + 1) // 2


def expand_s(board: Board, mla: MLAConfig, length: int) -> float:
    """K and V of all heads from the latent, on the CPU."""
    return (
        2.0
        * length
        * mla.kv_lora_rank
        * mla.num_heads
        * (mla.qk_nope_head_dim + mla.v_head_dim)
        / board.cpu_ops
    )


def attention_cpu_s(board: Board, mla: MLAConfig, fmt: str, rows: int, start: int) -> float:
    """A layer's attention of a block on the CPU."""
    width = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    rate = board.cpu_ops if fmt == "int8" else board.cpu_flops
    return expand_s(board, mla, start + rows) + mla.num_heads * pairs(rows, start) * (
        2 * width / rate + board.score_s
    )


def attention_npu_s(board: Board, mla: MLAConfig, fmt: str, rows: int, start: int) -> float:
    """The same on the NPU, with the best size of products."""
    return min(products_s(board, mla, fmt, rows, start, chunk) for chunk in CHUNKS)


def products_s(board: Board, mla: MLAConfig, fmt: str, rows: int, start: int, chunk: int) -> float:
    """With products of `chunk` rows. Those and the softmax between them overlap: the slower side counts."""
    there = here = 0.0
    kind = "int8" if fmt == "int8" else "fp16"
    for first in range(0, rows, chunk):
        count = min(chunk, rows - first)
        tiles = -(-(start + first + count) // TILE_KEYS)
        qk = Shape(kind, count, round_up(mla.qk_nope_head_dim + mla.qk_rope_head_dim, 32), TILE_KEYS)
        pv = Shape(kind, count, TILE_KEYS, round_up(mla.v_head_dim, 32))
        moved = sum(shape.nbytes("A") + shape.nbytes("C") for shape in (qk, pv))
        there += tiles * (product_s(board, qk) + product_s(board, pv) + moved / board.sync)
        here += tiles * (count * TILE_KEYS * board.score_s + 2 * board.host_s)
    return max(mla.num_heads * there / board.cores, mla.num_heads * here + expand_s(board, mla, start + rows))


def projection_cpu_s(board: Board, tokens: int, rows: int, cols: int) -> float:
    return 2.0 * tokens * rows * cols / board.cpu_ops


def projection_npu_s(board: Board, tokens: int, rows: int, cols: int) -> float:
    """Exact: a product for each 128 inputs, whose sums the CPU reads back and adds."""
    share = round_up(-(-rows // CORES), 32)
    parts, groups = -(-share // MOST_COLS), -(-cols // GROUP)
    shape = Shape("int8", ROWS, GROUP, round_up(-(-share // parts), 32))
    one = product_s(board, shape) + (shape.nbytes("A") + shape.nbytes("C")) / board.sync
    there = groups * parts * CORES * one / board.cores
    here = groups * parts * CORES * (shape.nbytes("C") / board.stream + board.host_s)
    return -(-tokens // ROWS) * max(there, here)


def _projections(config: ModelConfig) -> Iterator[layout.Linear]:
    return (
        item for item in layout.items(config) if isinstance(item, layout.Linear) and item.name != "lm_head"
    )


def other_weights(config: ModelConfig) -> dict[str, float]:
    """Weights that a token meets beside its projections: routed experts, the rest of the layers, lm_head."""
    found = {"experts": 0.0, "rest": 0.0, "lm_head": float(config.vocab_size * config.hidden_size)}
    for item in layout.items(config):
        if isinstance(item, layout.Experts):
            routed = item.role == "experts" and item.count > 1 and config.moe is not None
            used = config.moe.top_k if routed and config.moe is not None else item.count
            found["experts" if routed else "rest"] += 3.0 * used * item.intermediate * item.hidden
        elif isinstance(item, layout.Small):
            found["rest"] += item.rows * item.cols
    return found


def prefill_s(board: Board, config: ModelConfig, fmt: str, tokens: int, npu: bool = True) -> dict[str, float]:
    """Seconds of a prompt's parts: attention, projections, experts (with what else a layer multiplies), kda, lm_head.

    With `npu` each block's attention and each projection is where it is faster, as the curves would have it.
    """
    weights = other_weights(config)
    layers = config.layer_types.count("mla")
    found = dict.fromkeys(("attention", "projections", "experts", "kda", "lm_head"), 0.0)
    for start in range(0, tokens, BLOCK):
        rows = min(BLOCK, tokens - start)
        if config.mla is not None:
            times = [attention_cpu_s(board, config.mla, fmt, rows, start)]
            if npu:
                times.append(attention_npu_s(board, config.mla, fmt, rows, start))
            found["attention"] += layers * min(times)
        for item in _projections(config):
            times = [projection_cpu_s(board, rows, item.rows, item.cols)]
            if npu:
                times.append(projection_npu_s(board, rows, item.rows, item.cols))
            found["projections"] += min(times)
        found["experts"] += 2.0 * rows * (weights["experts"] + weights["rest"]) / board.cpu_ops
        found["kda"] += rows * board.kda_s
    found["lm_head"] = weights["lm_head"] / board.stream
    return found


def weight_bytes(config: ModelConfig) -> float:
    """Read for one decoded token: experts in W4, all else in W8."""
    weights = other_weights(config)
    projections = sum(item.rows * item.cols for item in _projections(config))
    up = [item for item in layout.items(config) if isinstance(item, layout.KVUp)]
    absorbed = sum(item.heads * (item.nope + item.value) * item.rank for item in up)
    return W4_BYTES * weights["experts"] + weights["rest"] + weights["lm_head"] + projections + absorbed


def decode_s(board: Board, config: ModelConfig, fmt: str, depth: int) -> float:
    """One token on a history of `depth`, on the CPU: weights and states read, then the latent attended."""
    kda, mla = config.kda, config.mla
    layers = config.layer_types.count("kda")
    states = 2.0 * layers * kda.num_heads * kda.head_dim**2 * 4 if kda is not None else 0.0
    seconds = (weight_bytes(config) + states) / board.stream + board.step_s
    if mla is not None:
        layers = config.layer_types.count("mla")
        ops = 2.0 * mla.num_heads * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim)
        rate = board.cpu_ops if fmt == "int8" else board.cpu_flops
        reading = kv_bytes_per_token(mla, "latent", fmt) / board.stream
        seconds += layers * depth * (max(ops / rate, reading) + mla.num_heads * board.score_s)
    return seconds
