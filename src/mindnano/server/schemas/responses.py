"""POST /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from mindnano.engine.timings import Timings
from mindnano.server.schemas import common
from mindnano.server.schemas.chat import Effort
from mindnano.server.schemas.common import Body, Part, Request, Schema
from mindnano.server.settings import MAX_MESSAGES, MAX_TOOLS, MAX_TOP_LOGPROBS

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class InputText(Part, tag="input_text"):
    text: str


class ResultText(Part):
    text: str
    type: Literal["input_text"]


class InputOutputText(Part, tag="output_text"):
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputRefusal(Part, tag="refusal"):
    refusal: str


class InputMessage(Part):
    """content of user, system and developer messages: input_text; of the assistant's: output_text, refusal."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputText | InputOutputText | InputRefusal]
    type: Literal["message"] = "message"
    id: str | None = None
    status: ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class InputCall(Part):
    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: ItemStatus | None = None


class InputCallOutput(Part):
    call_id: str
    output: str | list[ResultText]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: ItemStatus | None = None


class ReasoningText(Part):
    text: str
    type: Literal["reasoning_text"]


class InputReasoning(Part):
    """An earlier answer's reasoning, which the chat template may show again."""

    summary: Annotated[list[Any], Meta(max_length=0)] | None = None
    content: list[ReasoningText] | None = None
    type: Literal["reasoning"] = "reasoning"
    id: str | None = None
    encrypted_content: None = None
    status: ItemStatus | None = None


ITEMS: dict[str, type[InputMessage | InputCall | InputCallOutput | InputReasoning]] = {
    "message": InputMessage,
    "function_call": InputCall,
    "function_call_output": InputCallOutput,
    "reasoning": InputReasoning,
}
# An item without a type is a message, which msgspec's tagged unions can't say: converted one by one.
_ITEM = {"anyOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in ITEMS.values()]}
Items = Annotated[
    list[dict[str, Any]],
    Meta(min_length=1, max_length=MAX_MESSAGES, extra_json_schema={"items": _ITEM}),
]


class ResponseTool(Part):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_.:-]{1,128}$")]
    type: Literal["function"]
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class FunctionChoice(Part):
    name: str
    type: Literal["function"]


class PlainText(Part, tag="text"):
    pass


class JsonObject(Part, tag="json_object"):
    pass


class JsonSchema(Part, tag="json_schema"):
    schema: Schema
    name: Annotated[str, Meta(max_length=128)] = "answer"
    description: str | None = None
    strict: bool | None = None


class TextConfig(Part):
    format: PlainText | JsonObject | JsonSchema | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningConfig(Part):
    """summary: auto, since there is none; the reasoning itself is returned."""

    effort: Effort | None = None
    summary: Literal["auto"] | None = None
    generate_summary: None = None


class ResponseStreamOptions(Part):
    include_obfuscation: Literal[False] | None = None


class ResponseRequest(Request):
    """OpenAI's response; nothing is stored, so previous_response_id and the like are refused."""

    input: str | Items
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: common.MaxTokens | None = None
    temperature: common.Temperature | None = None
    top_p: common.TopP | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    include: list[Literal["message.output_text.logprobs"]] | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["disabled"] | None = None
    store: Literal[False] | None = None
    background: Literal[False] | None = None
    previous_response_id: None = None
    conversation: None = None
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None
    safety_identifier: Annotated[str, Meta(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=512)] | None = None
    service_tier: Literal["auto", "default"] | None = None
    progress: bool | None = None


class InputDetails(Body):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Body):
    reasoning_tokens: int


class ResponseUsage(Body):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(Body):
    reason: Literal["max_output_tokens"]


class ResponseBody(Body, omit_defaults=False):
    """The answer. output: items of type reasoning, message and function_call."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete"]
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    temperature: float
    top_p: float
    tool_choice: str | FunctionChoice
    tools: list[ResponseTool]
    text: TextConfig
    reasoning: ReasoningConfig
    instructions: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    incomplete_details: Incomplete | None = None
    usage: ResponseUsage | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    timings: Timings | None = None
    object: Literal["response"] = "response"
    error: None = None
    previous_response_id: None = None
    store: bool = False
    background: bool = False
    truncation: Literal["disabled"] = "disabled"
    service_tier: Literal["default"] = "default"
