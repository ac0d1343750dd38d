"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from mindnano.engine.timings import Timings
from mindnano.server.schemas import common
from mindnano.server.schemas.common import Body, Part, Request, Schema
from mindnano.server.settings import MAX_CHOICES, MAX_MESSAGES, MAX_TOOLS, MAX_TOP_LOGPROBS


class TextPart(Part):
    text: str
    type: Literal["text"]


class AnswerPart(Part, tag="text"):
    text: str


class RefusalPart(Part, tag="refusal"):
    refusal: str


Text = str | list[TextPart]


class SystemMessage(Part, tag_field="role", tag="system"):
    content: Text
    name: str | None = None


class DeveloperMessage(Part, tag_field="role", tag="developer"):
    content: Text
    name: str | None = None


class UserMessage(Part, tag_field="role", tag="user"):
    content: Text
    name: str | None = None


class FunctionCall(Part):
    name: str
    arguments: str


class MessageToolCall(Part):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None


class AssistantMessage(Part, tag_field="role", tag="assistant"):
    """reasoning_content: the thinking that came before, where the template shows it again."""

    content: str | list[AnswerPart | RefusalPart] | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    function_call: None = None
    audio: None = None
    annotations: list[Any] | None = None


class ToolMessage(Part, tag_field="role", tag="tool"):
    content: Text
    tool_call_id: str
    name: str | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionTool(Part):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.:-]{1,128}$")]
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class Tool(Part):
    function: FunctionTool
    type: Literal["function"] = "function"


class NamedFunction(Part):
    name: str


class NamedTool(Part):
    function: NamedFunction
    type: Literal["function"] = "function"


class TextFormat(Part, tag="text"):
    pass


class JsonObjectFormat(Part, tag="json_object"):
    pass


class NamedSchema(Part):
    """strict: true refuses what can't be enforced of the schema; otherwise that part is left to the model."""

    name: Annotated[str, Meta(max_length=128)] = "answer"
    description: str | None = None
    schema: Schema | None = None
    strict: bool | None = None


class JsonSchemaFormat(Part, tag="json_schema"):
    json_schema: NamedSchema


class GrammarFormat(Part, tag="grammar"):
    """A grammar in llguidance's Lark notation; not of OpenAI's interface."""

    grammar: str


class RegexFormat(Part, tag="regex"):
    """A regular expression for the whole answer; not of OpenAI's interface."""

    regex: str


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat | GrammarFormat | RegexFormat
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class TemplateKwargs(Part):
    """Variables of the chat template. enable_thinking: think before answering."""

    enable_thinking: bool | None = None


class AnswerRequest(Request, kw_only=True):
    """What both kinds of completion can be asked for."""

    model: str | None = None
    stream: bool | None = None
    stream_options: common.StreamOptions | None = None
    max_tokens: common.MaxTokens | None = None
    temperature: common.Temperature | None = None
    top_p: common.TopP | None = None
    top_k: common.TopK | None = None
    min_p: common.MinP | None = None
    presence_penalty: common.Penalty | None = None
    frequency_penalty: common.Penalty | None = None
    repetition_penalty: common.RepetitionPenalty | None = None
    seed: common.Seed | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: common.Stop | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    response_format: ResponseFormat | None = None
    progress: bool | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None


class ChatRequest(AnswerRequest):
    """OpenAI's chat completion, with top_k, min_p, repetition_penalty, ignore_eos, chat_template_kwargs, progress,
    session and continue_final_message (the last message is an answer to go on with) of this server."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: common.MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    reasoning_effort: Effort | None = None
    continue_final_message: bool | None = None
    session: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    safety_identifier: Annotated[str, Meta(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=512)] | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: list[Literal["text"]] | None = None
    verbosity: Literal["medium"] | None = None
    store: Literal[False] | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=0)] | None = None


class TopLogprob(Body, kw_only=False):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(Body, kw_only=False):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(Body):
    """One entry a token of the content; reasoning and tool calls have none."""

    content: list[TokenLogprob]


class AnswerFunction(Body, kw_only=False):
    name: str
    arguments: str


class AnswerToolCall(Body):
    id: str
    type: Literal["function"]
    function: AnswerFunction


class AnswerMessage(Body):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[AnswerToolCall] | UnsetType = UNSET
    refusal: None = None


FinishReason = Literal["stop", "length", "tool_calls"]


class Choice(Body):
    index: int
    message: AnswerMessage
    finish_reason: FinishReason
    logprobs: ChoiceLogprobs | None


class ChatCompletion(Body):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: common.Usage
    timings: Timings


class FunctionDelta(Body):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(Body):
    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(Body):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Body):
    index: int
    delta: Delta
    finish_reason: FinishReason | None
    logprobs: ChoiceLogprobs | UnsetType | None = UNSET


class ChatChunk(Body):
    """timings: in the last chunk of the last choice. usage: in a chunk of its own, where asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: common.Usage | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET


class ProgressEvent(Body):
    """Data of the event `mindnano.progress`."""

    tokens_done: int
    tokens_total: int
    seconds_left: float | None
