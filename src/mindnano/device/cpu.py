"""Prefill attention on the CPU: a few heads' history is expanded into scratch, then query tiles attend to it."""

from __future__ import annotations

from collections.abc import Iterator

from mindnano import kernels
from mindnano.cache.kv import KVCache, LatentCache
from mindnano.checkpoint.config import MLAConfig
from mindnano.kernels import HeadHistory, Matrix
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock

# Multiply-adds of one call: about a quarter of a second on two slow cores, so that a prefill can be
# left that often.
_CALL_MACS = 16e9


class CpuAttention:
    """Causal attention of a block's queries over a sequence's cache, head group by head group."""

    name = "cpu"

    def __init__(self, config: MLAConfig, fmt: str) -> None:
        self.config = config
        self.history = HeadHistory(
            fmt, config.num_heads, config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        )

    def attend(
        self, q: F32, kv: KVCache, kv_b: Matrix | None, start: int, scale: float, out: F32, clock: StageClock,
        heads: range | None = None,
    ) -> Iterator[None]:  # fmt: skip
        """q [T, H, Dk] at positions start.. against cache rows [0, start + T); writes out [T, H, Dv].

        All heads, or these. The block's own rows are in the cache already. Yields between pieces of bounded work.
        """
        c = self.config
        heads = range(c.num_heads) if heads is None else heads
        rows, length = q.shape[0], start + q.shape[0]
        width = c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim
        for head in heads[:: kernels.threads()]:
            group = min(kernels.threads(), heads.stop - head)
            if isinstance(kv, LatentCache):
                seconds = self.history.load_latent(kv.view, length, head, group, kv_b)
            else:
                seconds = self.history.load_expanded(kv.view, length, head, group)
            clock.attention(self.name, *seconds)
            clock.lap("mla")
            yield
            step = max(64, int(_CALL_MACS / (group * length * width)) // 64 * 64)
            for begin in range(0, rows, step):
                end = min(begin + step, rows)
                clock.attention(self.name, *self.history.attend(q, start, begin, end, scale, out))
                clock.lap("mla")
                yield
