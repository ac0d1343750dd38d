"""The least time that prefill and decode can take on this machine: operations over peak, bytes over bandwidth.

Counted from the configuration and the weights as they are stored, for a machine that does nothing else and nothing
twice. What the floor leaves out (norms, gates, the router, sampling) is small beside it. A share of the floor says how
much a better program could still gain; the rest is the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from mindnano.bench.limits import Meter
from mindnano.cache.kv import kv_bytes_per_token
from mindnano.checkpoint import layout
from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.layout import Experts, KVUp, Linear, Small
from mindnano.checkpoint.store import WeightStore
from mindnano.kernels import Matrix

NEEDED = ("read", "int8", "int4", "fma")


@dataclass(frozen=True)
class Work:
    """Of one token through all layers. A multiply-add counts as two operations.

    products: operations by limit ("int4", "int8", "fma") of prefill, without `lm_head`. read: bytes of weights, states
    and `lm_head` that a decoded token reads (KDA states are written as well: twice their size). pair: operations of
    attention between a query and a key in prefill; expand: to bring a history token's K and V back from the latent.
    absorbed: operations of a decoded token on a history token, and row: the bytes it reads of it.
    """

    products: dict[str, float]
    read: float
    pair: float
    expand: float
    absorbed: float
    row: float
    attention_limit: str

    def prefill_seconds(self, tokens: int, depth: int, limits: dict[str, float]) -> float:
        """A block of `tokens` after `depth` tokens of history. limits: 1e9 a second, by name."""
        pairs = tokens * (depth + (tokens + 1) / 2)
        seconds = sum(tokens * ops / limits[name] for name, ops in self.products.items())
        seconds += pairs * self.pair / limits[self.attention_limit]
        return (seconds + (depth + tokens) * self.expand / limits["int8"]) / 1e9

    def decode_seconds(self, depth: int, limits: dict[str, float]) -> float:
        """One token after `depth` tokens. Attention is bound by its operations or by its bytes, whichever is more."""
        attention = max(self.absorbed / limits[self.attention_limit], self.row / limits["read"])
        return (self.read / limits["read"] + depth * attention) / 1e9


def count(config: ModelConfig, weights: WeightStore, kv_layout: str, kv_format: str) -> Work:
    """The work of one token with these weights and this cache."""
    products = {"int4": 0.0, "int8": 0.0, "fma": 0.0}
    read = 0.0
    moe, mla, kda = config.moe, config.mla, config.kda

    def add(matrices: list[Matrix | None], share: float = 1.0, prefill: bool = True) -> None:
        nonlocal read
        for matrix in matrices:
            if matrix is None:
                continue
            read += share * matrix.nbytes
            if prefill:
                limit = {"w4": "int4", "w8": "int8"}.get(matrix.format, "fma")
                products[limit] += 2.0 * share * matrix.count * matrix.rows * matrix.cols

    for item in layout.items(config):
        if isinstance(item, Linear):
            add(list(weights.linear(item.name)), prefill=item.name != "lm_head")
        elif isinstance(item, KVUp):
            base = item.name.rpartition(".")[0]
            add([weights.heads(f"{base}.{part}") for part in ("k_absorb", "v_absorb")], prefill=False)
        elif isinstance(item, Experts):
            one = weights.experts(item.name)
            share = moe.top_k / item.count if moe is not None and item.count > 1 else 1.0
            add([one.gate_up, one.gate, one.up, one.down], share)
        elif isinstance(item, Small):
            read += 4.0 * item.rows * item.cols
    layers = sum(kind == "mla" for kind in config.layer_types)
    recurrent = len(config.layer_types) - layers
    state = kda.num_heads * kda.head_dim**2
    read += recurrent * 2 * 4 * state
    products["fma"] += recurrent * 8.0 * state
    key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    each = 2.0 * layers * mla.num_heads
    latent = kv_layout == "latent"
    return Work(
        products=products,
        read=read,
        pair=each * (key + mla.v_head_dim),
        expand=each * (mla.qk_nope_head_dim + mla.v_head_dim) * mla.kv_lora_rank if latent else 0.0,
        absorbed=each * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim if latent else key + mla.v_head_dim),
        row=layers * kv_bytes_per_token(mla, kv_layout, kv_format),
        attention_limit="int8" if kv_format == "int8" else "fma",
    )


class Watch:
    """Looks at the machine's limits while something else is measured, so that both meet the same machine."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._seen: dict[str, list[float]] = {}

    def look(self, *names: str) -> None:
        for name in names:
            self._seen.setdefault(name, []).append(self._meter.look(name, rounds=3))

    def take(self) -> dict[str, float]:
        """The mean of the looks since the last time, 1e9 a second."""
        found = {name: mean(values) for name, values in self._seen.items()}
        self._seen = {}
        return found
