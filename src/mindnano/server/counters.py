"""What is counted while the server runs, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from mindnano.engine.completion import Completion

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15, 30, 60, 120, 300, 600)
_GAPS = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1, 2, 5)


class Metrics:
    """Counters and histograms, with the registry that they are read from. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Answered requests.", ("endpoint", "status"))
        self.finished = self._counter("answers", "Answers that ended, by reason.", ("reason",))
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self.cached_tokens = self._counter("cached_prompt_tokens", "Of them, not computed again.")
        self.answer_tokens = self._counter("answer_tokens", "Tokens of answers.")
        self.refused = self._counter("queue_full", "Requests refused since too many waited.")
        self.failures = self._counter("engine_failures", "Steps of the engine that failed.")
        self.attention = self._counter("prompt_attention_calls", "Calls of prompts' attention.", ("device",))
        self.fallbacks = self._counter(
            "device_fallbacks", "Calls that a device failed at and the CPU served."
        )
        self.ttft = self._histogram("ttft_seconds", "From a request to its first token.", _SECONDS)
        self.gaps = self._histogram("token_gap_seconds", "Between two tokens of an answer.", _GAPS)
        self.queued = self._histogram("queue_seconds", "From a request to its slot.", _SECONDS)

    def ended(self, completion: Completion) -> None:
        """Book an answer."""
        self.finished.labels(completion.finish_reason).inc()
        self.prompt_tokens.inc(completion.usage.prompt_tokens)
        self.cached_tokens.inc(completion.timings.cached_tokens)
        self.answer_tokens.inc(completion.usage.completion_tokens)
        for device, calls in completion.timings.mla_calls.items():
            self.attention.labels(device).inc(calls)
        self.fallbacks.inc(completion.timings.fallbacks)

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"mindnano_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"mindnano_{name}", text, buckets=buckets, registry=self.registry)
