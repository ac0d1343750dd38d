"""Conversations to prompts, with the checkpoint's own template where it has one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from mindnano.errors import MindNanoError, shorten

_MOST_TEMPLATE = 256 << 10
_MOST_OUTPUT = 64 << 20
_MOST_RANGE = 100_000

# Ling 3's form: thinking is switched in the system turn, tools are listed there, one JSON a line.
LING_TEMPLATE = """\
{%- set thinking = enable_thinking if enable_thinking is defined else true -%}
{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}
<role>SYSTEM</role>
{%- if system %}{{ system }}{{ '\\n' }}{% endif %}
{%- if tools %}{{ '# Tools\\n\\nYou may call one or more functions. The functions are listed in <tools></tools>:\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
{{- '\\n</tools>\\n\\nA call is written as:\\n<tool_call>NAME<arg_key>KEY</arg_key>\\n<arg_value>VALUE</arg_value>\\n</tool_call>\\n' }}
{%- endif %}
{{- 'detailed thinking on' if thinking else 'detailed thinking off' }}<|role_end|>
{%- for message in messages %}
{%- if message.role == 'user' %}<role>HUMAN</role>{{ message.content }}<|role_end|>
{%- elif message.role == 'assistant' %}<role>ASSISTANT</role>
{%- if message.content %}{{ '\\n' }}<think></think>{{ message.content.split('</think>')[-1] }}{% endif %}
{%- for call in message.tool_calls or [] %}{% set f = call.function or call %}
{{- '\\n<tool_call>' }}{{ f.name }}
{%- for key, value in f.arguments.items() %}<arg_key>{{ key }}</arg_key>{{ '\\n' }}<arg_value>
{{- value if value is string else value | tojson }}</arg_value>{{ '\\n' }}{% endfor %}</tool_call>
{%- endfor %}<|role_end|>
{%- elif message.role == 'tool' %}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}<role>OBSERVATION</role>{% endif %}
{{- '\\n<tool_response>\\n' }}{{ message.content }}{{ '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|role_end|>{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<role>ASSISTANT</role>{{ '\\n' }}<think>{{ '' if thinking else '</think>' }}{% endif %}"""


def _raise(message: str) -> None:
    raise MindNanoError(f"chat template: {message}")


def _range(*bounds: int) -> range:
    if len(range(*bounds)) > _MOST_RANGE:
        raise SecurityError(f"range of more than {_MOST_RANGE}")
    return range(*bounds)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


class ChatTemplate:
    """A jinja template in a sandbox: it reads the conversation and writes text, nothing else."""

    def __init__(self, source: str | None, guard: Callable[[str], str] | None = None) -> None:
        source = source or LING_TEMPLATE
        if len(source) > _MOST_TEMPLATE:
            raise MindNanoError(f"chat template: {len(source)} characters, expected at most {_MOST_TEMPLATE}")
        self.source = source
        self._guard = guard or (lambda text: text)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols], autoescape=False
        )
        environment.filters["tojson"] = _tojson
        environment.globals.update(
            raise_exception=_raise, range=_range, strftime_now=lambda form: datetime.now().strftime(form)
        )
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise MindNanoError(f"chat template: {shorten(str(error))}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt's text. `variables` are the template's own, such as enable_thinking.

        Raises MindNanoError for messages that the template doesn't take.
        """
        if not messages:
            raise MindNanoError("messages: expected at least one, got none")
        for i, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise MindNanoError(f"messages[{i}]: expected an object with a role, got {shorten(message)}")
        pieces, size = [], 0
        try:
            for piece in self._template.generate(
                messages=self._guarded(list(messages)), tools=self._guarded(tools),
                add_generation_prompt=add_generation_prompt, **variables,
            ):  # fmt: skip
                size += len(piece)
                if size > _MOST_OUTPUT:
                    raise MindNanoError(f"chat template: wrote more than {_MOST_OUTPUT} characters")
                pieces.append(piece)
        except MindNanoError:
            raise
        except Exception as error:  # whatever a template does wrong is the template's or the messages' fault
            raise MindNanoError(f"chat template: {type(error).__name__}: {shorten(str(error))}") from None
        return "".join(pieces)

    def _guarded(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._guard(value)
        if isinstance(value, Mapping):
            return {key: self._guarded(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guarded(item) for item in value]
        return value
