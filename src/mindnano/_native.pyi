# The compiled module describes itself: help(mindnano.kernels) and the docstrings in native/bindings.
from typing import Any

def __getattr__(name: str) -> Any: ...
