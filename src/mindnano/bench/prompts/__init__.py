"""Prompts that no server has seen: text from a seed, cut to an exact number of tokens. Imports the tokenizer."""

from mindnano.bench.prompts.counting import Prompt, exact
from mindnano.bench.prompts.text import KINDS, Writer, digits

__all__ = ["KINDS", "Prompt", "Writer", "digits", "exact"]
