"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from mindnano.engine.timings import Timings
from mindnano.server.schemas import common
from mindnano.server.schemas.common import Body, Part, Request, Schema
from mindnano.server.settings import MAX_MESSAGES, MAX_STOPS, MAX_TOOLS


class CacheControl(Part):
    """A prefix is always kept where the cache has room; this asks for nothing more."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(Part, tag="text"):
    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[list[Any], Meta(max_length=0)] | None = None


class PlainBlock(Part):
    """A text block where there can be no other."""

    text: str
    type: Literal["text"]
    cache_control: CacheControl | None = None
    citations: Annotated[list[Any], Meta(max_length=0)] | None = None


class ThinkingBlock(Part, tag="thinking"):
    thinking: str
    signature: str = ""


class ToolUseBlock(Part, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolResultBlock(Part, tag="tool_result"):
    """is_error: the model is told that the tool failed."""

    tool_use_id: str
    content: str | list[PlainBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class UserMessage(Part, tag_field="role", tag="user"):
    content: str | list[TextBlock | ToolResultBlock]


class AssistantMessage(Part, tag_field="role", tag="assistant"):
    content: str | list[TextBlock | ThinkingBlock | ToolUseBlock]


class SystemMessage(Part, tag_field="role", tag="system"):
    content: str | list[PlainBlock]


Message = UserMessage | AssistantMessage | SystemMessage


class Tool(Part):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.:-]{1,128}$")]
    input_schema: Schema
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: CacheControl | None = None


class AutoChoice(Part, tag="auto"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Part, tag="any"):
    disable_parallel_tool_use: bool | None = None


class ToolChoice(Part, tag="tool"):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoneChoice(Part, tag="none"):
    pass


class ThinkingEnabled(Part, tag="enabled"):
    """display: omitted leaves the reasoning out of the answer; otherwise all of it is returned."""

    budget_tokens: Annotated[int, Meta(ge=1, le=1 << 30)]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(Part, tag="adaptive"):
    display: Literal["summarized", "omitted"] | None = None


class ThinkingDisabled(Part, tag="disabled"):
    pass


class JsonFormat(Part):
    type: Literal["json_schema"]
    schema: Schema


class OutputConfig(Part):
    """effort: bounds the reasoning, where there is any."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class Metadata(Part):
    user_id: Annotated[str, Meta(max_length=512)] | None = None


Thinking = ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled
Choice = AutoChoice | AnyChoice | ToolChoice | NoneChoice
Messages = Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]


class CountRequest(Request):
    """Anthropic's count of a prompt's tokens."""

    messages: Messages
    model: str | None = None
    system: str | list[PlainBlock] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None


class MessageRequest(Request):
    """Anthropic's message. A last message of the assistant is gone on with."""

    max_tokens: common.MaxTokens
    messages: Messages
    model: str | None = None
    system: str | list[PlainBlock] | None = None
    stream: bool | None = None
    stop_sequences: Annotated[list[common.StopString], Meta(max_length=MAX_STOPS)] | None = None
    temperature: common.Temperature | None = None
    top_p: common.TopP | None = None
    top_k: common.TopK | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: CacheControl | None = None
    progress: bool | None = None


class MessageUsage(Body, omit_defaults=False):
    """input_tokens doesn't count what was reused, cache_read_input_tokens does."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class AnswerText(Body, tag="text"):
    text: str


class AnswerThinking(Body, tag="thinking", omit_defaults=False):
    thinking: str
    signature: str = ""


class AnswerToolUse(Body, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageBody(Body, omit_defaults=False):
    """The answer."""

    id: str
    model: str
    content: list[AnswerText | AnswerThinking | AnswerToolUse]
    usage: MessageUsage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    timings: Timings | None = None


class TokenCount(Body):
    input_tokens: int
