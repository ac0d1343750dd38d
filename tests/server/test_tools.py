"""Tool calls: what the grammar allows, what is read of them, what clients get."""

import json

import jsonschema_rs
import pytest

from mindnano.errors import MindNanoError
from mindnano.server.tools import schema as schemas
from mindnano.server.tools.form import Tool
from mindnano.server.tools.forms import find_form
from mindnano.server.tools.kimi import KimiForm
from mindnano.server.tools.ling import LingForm
from mindnano.server.tools.markers import Markers
from mindnano.tokenizer.ling import TEMPLATE as LING

from .running import user
from .test_answer import PING, call
from .test_chat import chunks, stream

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "spot": {"type": "object", "properties": {"x": {"$ref": "#/$defs/number"}}, "required": ["x"],
                 "additionalProperties": False},
    },
    "required": ["city", "days", "spot"],
    "additionalProperties": False,
    "$defs": {"number": {"type": "integer", "minimum": 0, "maximum": 5}},
}  # fmt: skip


def tool(name, parameters=None, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters} | more}


TOOLS = [tool("weather", WEATHER, description="How it will be"), tool("ping")]
WRITTEN = call("weather", city="Paris", days=3, spot='{"x": 1}')
ARGUMENTS = {"city": "Paris", "days": 3, "spot": {"x": 1}}


def calls_of(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]]


def test_the_model_sees_the_tools(ask, llm, says):
    says("No call.")
    got = ask(messages=user("x"), tools=TOOLS)
    assert got["choices"][0]["message"] == {"role": "assistant", "content": "No call."}
    assert got["choices"][0]["finish_reason"] == "stop"
    listed = llm.prompts[-1].split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
    assert json.loads(listed[0])["function"]["parameters"] == WEATHER
    assert json.loads(listed[1])["function"]["name"] == "ping"


def test_calls_are_returned_as_calls(ask, says):
    says(f"I'll look.{WRITTEN}\n{PING}")
    choice = ask(messages=user("x"), tools=TOOLS)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I'll look."
    assert calls_of(choice["message"]) == [("weather", ARGUMENTS), ("ping", {})]
    ids = [one["id"] for one in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2 and all(one.startswith("call_") for one in ids)


def test_a_newline_may_follow_the_name(ask, says):
    says(WRITTEN.replace("weather\n", "weather", 1).replace("</arg_key>\n", "</arg_key>"))
    assert calls_of(ask(messages=user("x"), tools=TOOLS)["choices"][0]["message"]) == [("weather", ARGUMENTS)]


def test_arguments_are_streamed_as_deltas(client, says):
    says(f"Look.{WRITTEN}{PING}")
    found = chunks(stream(client, messages=user("x"), tools=TOOLS, max_tokens=300))
    deltas = [one for chunk in found for one in chunk["choices"][0]["delta"].get("tool_calls", ())]
    first = [one for one in deltas if one["index"] == 0]
    assert first[0]["function"] == {"name": "weather", "arguments": ""} and first[0]["type"] == "function"
    assert all("name" not in one["function"] and "id" not in one for one in first[1:])
    assert len(first) > 10
    assert json.loads("".join(one["function"]["arguments"] for one in first)) == ARGUMENTS
    assert next(one["function"].get("name") for one in deltas if one["index"] == 1) == "ping"
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_before_the_reasoning_ends_is_no_reasoning(ask, says):
    says(f"I need{WRITTEN}, then\n</think>\n\nDone")
    choice = ask(messages=user("x"), tools=TOOLS, reasoning_effort="high")["choices"][0]
    assert choice["message"]["reasoning_content"] == "I need, then"
    assert choice["message"]["content"] == "Done"
    assert calls_of(choice["message"]) == [("weather", ARGUMENTS)]


@pytest.mark.parametrize("thinking", [False, True])
def test_a_required_call_may_follow_or_break_the_reasoning(ask, says, thinking):
    for text in [WRITTEN] if not thinking else [f"hm{WRITTEN}", f"hm\n</think>\n\n{WRITTEN}"]:
        says(text)
        message = ask(
            messages=user("x"), tools=TOOLS, tool_choice="required",
            chat_template_kwargs={"enable_thinking": thinking},
        )["choices"][0]["message"]  # fmt: skip
        assert calls_of(message) == [("weather", ARGUMENTS)]


@pytest.mark.parametrize("seed", range(3))
def test_a_random_models_call_fits_the_schema(ask, seed):
    got = ask(
        messages=user("x"), tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}},
        parallel_tool_calls=False, seed=seed, max_tokens=1500,
    )  # fmt: skip
    choice = got["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    ((name, arguments),) = calls_of(choice["message"])
    assert name == "weather"
    jsonschema_rs.validate(WEATHER, arguments)


def test_no_choice_shows_no_tools(ask, llm, says):
    says(PING)
    message = ask(messages=user("x"), tools=TOOLS, tool_choice="none")["choices"][0]["message"]
    assert message["content"] == PING and "tool_calls" not in message
    assert "<tools>" not in llm.prompts[-1]


@pytest.mark.parametrize(
    ("use", "text"),
    [
        ({}, call("unknown")),
        ({}, call("ping", x=1)),
        ({}, call("weather", city="x", spot='{"x": 1}')),
        ({}, call("weather", city="x", days="many", spot='{"x": 1}')),
        ({}, call("weather", city="x", days=10, spot='{"x": 1}')),
        ({}, call("weather", city="x", unit="K", days=1, spot='{"x": 1}')),
        ({}, call("weather", city="x" * 21, days=1, spot='{"x": 1}')),
        ({}, call("weather", city="x", days=1, spot='{"x": 6}')),
        ({}, call("weather", city="x", days=1, spot='{"x": 1}', other=1)),
        ({"parallel_tool_calls": False}, PING + PING),
        ({"tool_choice": "required"}, "no"),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, PING),
    ],
)
def test_what_the_schema_or_the_choice_forbids_cant_be_said(client, says, use, text):
    """The script asserts that the grammar allows it: here the engine must stop it."""
    says(text)
    response = client.post("/v1/chat/completions", json={"messages": user("x"), "tools": TOOLS} | use)
    assert response.status_code == 500


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"x": {"type": "string", "pattern": "^a+$"}}},
        {"type": "object", "properties": {"x": {"type": ["string", "integer"]}}},
        {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}},
        {"type": "object", "properties": {}, "minProperties": 1},
    ],
)
def test_a_strict_tool_is_refused_where_its_schema_cant_be_enforced(client, parameters):
    body = {"messages": user("x"), "max_tokens": 1, "tools": [tool("f", parameters, strict=True)]}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400 and response.json()["error"]["param"] == "tools"
    body["tools"] = [tool("f", parameters)]
    assert client.post("/v1/chat/completions", json=body).status_code == 200


@pytest.mark.parametrize(
    "parameters",
    [{"type": "string"}, {"type": "object", "properties": {"": {}}},
     {"type": "object", "properties": {"a</arg_key>": {}}}, {"type": "object", "properties": {"x": {"enum": []}}}],
)  # fmt: skip
def test_parameters_that_cant_be_written_are_refused(client, parameters):
    body = {"messages": user("x"), "max_tokens": 1, "tools": [tool("f", parameters)]}
    assert client.post("/v1/chat/completions", json=body).status_code == 400


def test_a_model_without_a_known_form_refuses_tools(client, live, monkeypatch):
    monkeypatch.setattr(live.service, "form", None)
    body = {"messages": user("x"), "max_tokens": 1, "tools": TOOLS}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400 and "form of tool calls" in response.json()["error"]["message"]


def test_responses_return_calls_as_items(client, says):
    says(f"Look.{WRITTEN}")
    tools = [{"type": "function", "name": "weather", "parameters": WEATHER}]
    got = client.post("/v1/responses", json={"input": "x", "tools": tools}).json()
    assert [item["type"] for item in got["output"]] == ["message", "function_call"]
    assert json.loads(got["output"][1]["arguments"]) == ARGUMENTS
    assert got["status"] == "completed"


def test_messages_return_calls_as_blocks(client, says, llm):
    says(f"Look.{WRITTEN}")
    body = {
        "messages": user("x"), "max_tokens": 300, "tools": [{"name": "weather", "input_schema": WEATHER}]
    }  # fmt: skip
    got = client.post("/v1/messages", json=body).json()
    assert got["stop_reason"] == "tool_use"
    assert got["content"][0] == {"type": "text", "text": "Look."}
    assert got["content"][1]["input"] == ARGUMENTS
    says("Thanks")
    block = got["content"][1]
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "broken", "is_error": True}
    body["messages"] += [
        {"role": "assistant", "content": got["content"]}, {"role": "user", "content": [result]}
    ]  # fmt: skip
    assert client.post("/v1/messages", json=body).json()["content"][0]["text"] == "Thanks"
    assert "\n<tool_response>\nError: broken\n</tool_response>" in llm.prompts[-1]
    assert "Look.<tool_call>weather<arg_key>city</arg_key>" in llm.prompts[-1]


def test_rules_for_markers_that_are_special_tokens():
    tools = [Tool("f", None, {"type": "object", "properties": {"x": {"type": "string", "maxLength": 3}}})]
    rules = LingForm().call_rules(tools, Markers(["</tool_call>", "</arg_value>"]), True)
    assert "</tool_call>" in rules and '"</tool_call>"' not in rules
    assert "raw: " in rules and "raw[lazy]" not in rules


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"const": True}, {"boolean"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"$ref": "#/$defs/a"}, {"array"}),
        ({"$ref": "#/$defs/loop"}, schemas.KINDS),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        (True, schemas.KINDS),
        ({}, schemas.KINDS),
    ],
)
def test_kinds_of_values(schema, want):
    root = {"$defs": {"a": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert schemas.kinds(schema, root) == want


def test_depth_is_counted_without_recursion():
    value = 1
    for _ in range(100_000):
        value = [value]
    assert schemas.depth_of(value) == 100_000
    assert schemas.depth_of({"a": {"b": 1}, "c": 2}) == 2


def test_a_choice_that_holds_the_closing_marker_is_refused():
    tools = [Tool("f", None, {"type": "object", "properties": {"x": {"enum": ["a</arg_value>"]}}})]
    with pytest.raises(MindNanoError, match="no value can hold"):
        LingForm().call_rules(tools, Markers(), True)


class TestKimi:
    """The other family's form, by a model of this one."""

    WRITTEN = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        + json.dumps(ARGUMENTS)
        + "<|tool_call_end|><|tool_call_begin|>functions.ping:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )

    @pytest.fixture(autouse=True)
    def kimi(self, live, monkeypatch):
        monkeypatch.setattr(live.service, "form", KimiForm())

    def test_calls_are_returned_as_calls(self, ask, client, says):
        says("Look." + self.WRITTEN)
        message = ask(messages=user("x"), tools=TOOLS, max_tokens=400)["choices"][0]["message"]
        assert message["content"] == "Look."
        assert calls_of(message) == [("weather", ARGUMENTS), ("ping", {})]
        assert [one["id"] for one in message["tool_calls"]] == ["functions.weather:0", "functions.ping:1"]
        says(self.WRITTEN)
        found = chunks(
            stream(client, messages=user("x"), tools=TOOLS, tool_choice="required", max_tokens=400)
        )
        deltas = [one for chunk in found for one in chunk["choices"][0]["delta"].get("tool_calls", ())]
        first = "".join(one["function"]["arguments"] for one in deltas if one["index"] == 0)
        assert json.loads(first) == ARGUMENTS and len(deltas) > 20

    def test_a_random_models_call_fits_the_schema(self, ask):
        message = ask(
            messages=user("x"), tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}},
            parallel_tool_calls=False, seed=1, max_tokens=1500,
        )["choices"][0]["message"]  # fmt: skip
        ((name, arguments),) = calls_of(message)
        assert name == "weather"
        jsonschema_rs.validate(WEATHER, arguments)

    @pytest.mark.parametrize("use", [{"parallel_tool_calls": False}, {"tool_choice": {"type": "function", "function": {
        "name": "ping"}}}])  # fmt: skip
    def test_what_the_choice_forbids_cant_be_said(self, client, says, use):
        says(self.WRITTEN)
        body = {"messages": user("x"), "tools": TOOLS, "max_tokens": 400} | use
        assert client.post("/v1/chat/completions", json=body).status_code == 500


def test_a_form_is_found_by_the_template():
    assert isinstance(find_form(LING), LingForm)
    assert isinstance(find_form("{{ '<|tool_calls_section_begin|>' }}"), KimiForm)
    assert find_form("{{ messages }}") is None
