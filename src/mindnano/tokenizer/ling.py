"""Ling's chat format, for checkpoints that bring no template of their own.

Answers in the history have the form in which they are generated with thinking off, so that a follow-up prompt
begins with the tokens of the last one and its answer.
"""

TEMPLATE = r"""
{%- set thinking = enable_thinking is not defined or enable_thinking -%}
{%- set first = messages[0] if messages and messages[0].role == "system" else none -%}
<role>SYSTEM</role>
{%- if first -%}{{ first.content ~ "\n" }}{%- endif -%}
{%- if tools -%}
{{ "<tools>\n" }}
{%- for tool in tools -%}{{ tool | tojson ~ "\n" }}{%- endfor -%}
{{ "</tools>\n" }}
{%- endif -%}
detailed thinking {{ "on" if thinking else "off" }}<|role_end|>
{%- for message in messages -%}
{%- if message.role == "system" -%}
{%- if not loop.first -%}<role>SYSTEM</role>{{ message.content }}<|role_end|>{%- endif -%}
{%- elif message.role == "user" -%}
<role>HUMAN</role>{{ message.content }}<|role_end|>
{%- elif message.role == "assistant" -%}
{{ "<role>ASSISTANT</role>\n<think></think>" ~ (message.content or "").split("</think>")[-1] }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
<tool_call>{{ function.name }}
{%- for key, value in function.arguments.items() -%}
<arg_key>{{ key }}{{ "</arg_key>\n<arg_value>" }}{{ value if value is string else value | tojson }}
{{- "</arg_value>\n" }}
{%- endfor -%}
</tool_call>
{%- endfor -%}
<|role_end|>
{%- elif message.role == "tool" -%}
{%- if loop.first or loop.previtem.role != "tool" -%}<role>OBSERVATION</role>{%- endif -%}
{{ "\n<tool_response>\n" ~ message.content ~ "\n</tool_response>" }}
{%- if loop.last or loop.nextitem.role != "tool" -%}<|role_end|>{%- endif -%}
{%- else -%}
{{ raise_exception("a message has the role " ~ message.role ~ ", expected system, user, assistant or tool") }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ "<role>ASSISTANT</role>\n<think>" }}{{ "" if thinking else "</think>" }}
{%- endif -%}
""".strip()
