"""A tokenizer for models that have none: a token a byte, Ling's special tokens, made-up words."""

from __future__ import annotations

import json

from mindnano.checkpoint.config import ModelConfig
from mindnano.errors import MindNanoError

START, END, ROLE_END = "<|startoftext|>", "<|endoftext|>", "<|role_end|>"
_SYLLABLES = [c + v for c in "bdfghjklmnprstvz" for v in "aeiou"]

# Ling's chat format (system and thinking switch, tools, tool calls and results).
CHAT_TEMPLATE = r"""
{%- set thinking = enable_thinking is not defined or enable_thinking -%}
<role>SYSTEM</role>
{%- if messages and messages[0].role == "system" -%}
{{ messages[0].content }}{{ "\n" }}
{%- endif -%}
{%- if tools -%}
<tools>{{ "\n" }}
{%- for tool in tools -%}{{ tool | tojson }}{{ "\n" }}{%- endfor -%}
</tools>{{ "\n" }}
{%- endif -%}
detailed thinking {{ "on" if thinking else "off" }}<|role_end|>
{%- for message in messages -%}
{%- if message.role == "user" -%}
<role>HUMAN</role>{{ message.content }}<|role_end|>
{%- elif message.role == "assistant" -%}
<role>ASSISTANT</role>{{ message.content or "" }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
<tool_call>{{ function.name }}
{%- for key, value in function.arguments.items() -%}
<arg_key>{{ key }}</arg_key>{{ "\n" }}<arg_value>
{{- value if value is string else value | tojson }}</arg_value>{{ "\n" }}
{%- endfor -%}
</tool_call>
{%- endfor -%}
<|role_end|>
{%- elif message.role == "tool" -%}
{%- if loop.previtem is not defined or loop.previtem.role != "tool" -%}<role>OBSERVATION</role>{%- endif -%}
{{ "\n" }}<tool_response>{{ "\n" }}{{ message.content }}{{ "\n" }}</tool_response>
{%- if loop.nextitem is not defined or loop.nextitem.role != "tool" -%}<|role_end|>{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<role>ASSISTANT</role>{{ "\n" }}<think>{{ "" if thinking else "</think>" }}
{%- endif -%}
""".strip()


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each byte (GPT-2's table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(moved)) for b in range(256)]


def special_tokens(config: ModelConfig) -> dict[str, int]:
    """Ling's three special tokens at the configuration's ids; where it has none, at the vocabulary's end."""
    ids = {
        START: config.bos_token_id,
        END: config.pad_token_id,
        ROLE_END: config.eos_token_ids[0] if config.eos_token_ids else None,
    }
    found: dict[str, int] = {}
    free = iter(range(config.vocab_size - 1, 255, -1))
    taken = {i for i in ids.values() if i is not None}
    for name, token in ids.items():
        if token is None or token < 256 or token in found.values():
            token = next((i for i in free if i not in taken), None)
            if token is None:
                raise MindNanoError(
                    f"vocab_size is {config.vocab_size}, expected 259 or more: bytes and special tokens"
                )
            taken.add(token)
        found[name] = token
    return found


def build(config: ModelConfig) -> bytes:
    """A `tokenizer.json` for the whole vocabulary. Every byte is a token, so any text can be encoded;
    ids that encoding never yields decode to made-up words, harmless to print."""
    special = special_tokens(config)
    names = {token: name for name, token in special.items()}
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    for token in range(256, config.vocab_size):
        vocabulary[names.get(token) or "\u0120" + _word(token - 256)] = token
    added = [
        {
            "id": token,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name, token in sorted(special.items(), key=lambda entry: entry[1])
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    whole: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _word(number: int) -> str:
    """Different made-up words for different numbers: two syllables and more."""
    base, word = len(_SYLLABLES), ""
    while True:
        number, rest = divmod(number, base)
        word += _SYLLABLES[rest]
        if number == 0 and len(word) > 2:
            return word
