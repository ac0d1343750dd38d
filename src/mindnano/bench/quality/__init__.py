"""What a smaller cache or smaller weights cost: divergence, retrieval, greedy answers, in this process on any model."""

from mindnano.bench.quality.run import Plan, run
from mindnano.bench.quality.summary import Quality, summarize
from mindnano.bench.quality.variants import Variant

__all__ = ["Plan", "Quality", "Variant", "run", "summarize"]
