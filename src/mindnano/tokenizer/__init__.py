"""Text to token ids and back, and conversations to prompts. Imports errors only."""

from mindnano.tokenizer.incremental import IncrementalDecoder
from mindnano.tokenizer.template import ChatTemplate
from mindnano.tokenizer.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "IncrementalDecoder", "Tokenizer"]
