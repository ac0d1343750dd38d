"""Text to tokens and back, and conversations to prompts."""

from mindnano.tokenizer.chat import ChatTemplate
from mindnano.tokenizer.incremental import IncrementalDecoder
from mindnano.tokenizer.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "IncrementalDecoder", "Tokenizer"]
