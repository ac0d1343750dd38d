"""MindNano: long inputs on small machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mindnano.cache.sessions import SessionStore
    from mindnano.engine.llm import LLM
    from mindnano.engine.params import SamplingParams

__all__ = ["LLM", "SamplingParams", "SessionStore", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # the command line starts without loading the engine
    if name == "LLM":
        from mindnano.engine.llm import LLM

        return LLM
    if name == "SamplingParams":
        from mindnano.engine.params import SamplingParams

        return SamplingParams
    if name == "SessionStore":
        from mindnano.cache.sessions import SessionStore

        return SessionStore
    raise AttributeError(f"module 'mindnano' has no attribute {name!r}")
