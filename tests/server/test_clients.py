"""The openai and anthropic SDKs and curl against a running server."""

import json
import shutil
import subprocess

import anthropic
import openai
import pytest

from .running import user

SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "exact": {"type": "boolean"}},
    "required": ["unit", "exact"],
    "additionalProperties": False,
}


@pytest.fixture
def sdk(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def claude(live):
    with anthropic.Anthropic(base_url=live.url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


class TestOpenAI:
    def test_chat(self, sdk, says):
        says("Hello!")
        done = sdk.chat.completions.create(model="tiny", messages=user("Hi"))
        assert done.choices[0].message.content == "Hello!"
        assert done.usage.total_tokens == done.usage.prompt_tokens + 7
        assert done.timings["completion_tokens"] == 7

    def test_streaming(self, sdk, says):
        says("Hello there!")
        chunks = list(
            sdk.chat.completions.create(
                model="tiny", messages=user("Hi"), stream=True, stream_options={"include_usage": True}
            )
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello there!"
        assert chunks[-1].usage.completion_tokens == 13

    def test_tools_in_both_directions(self, sdk, says):
        tools = [{"type": "function", "function": {"name": "set", "parameters": SCHEMA}}]
        says("<tool_call>set<arg_key>unit</arg_key>\n<arg_value>C</arg_value>\n"
             "<arg_key>exact</arg_key>\n<arg_value>true</arg_value>\n</tool_call>")  # fmt: skip
        message = (
            sdk.chat.completions.create(model="tiny", messages=user("x"), tools=tools).choices[0].message
        )
        assert json.loads(message.tool_calls[0].function.arguments) == {"unit": "C", "exact": True}
        says("Set.")
        history = [
            *user("x"),
            message,
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "ok"},
        ]
        done = sdk.chat.completions.create(model="tiny", messages=history, tools=tools)
        assert done.choices[0].message.content == "Set."

    def test_streamed_tools(self, sdk):
        tools = [{"type": "function", "function": {"name": "set", "parameters": SCHEMA, "strict": True}}]
        with sdk.chat.completions.stream(
            model="tiny", messages=user("x"), tools=tools, tool_choice="required", parallel_tool_calls=False,
            max_tokens=1000,
        ) as stream:  # fmt: skip
            done = stream.get_final_completion()
        call = done.choices[0].message.tool_calls[0].function
        assert call.parsed_arguments["unit"] in ("C", "F") and call.name == "set"

    def test_structured_output(self, sdk):
        from typing import Literal

        from pydantic import BaseModel

        class Setting(BaseModel):
            unit: Literal["C", "F"]
            exact: bool

        done = sdk.chat.completions.parse(
            model="tiny", messages=user("x"), response_format=Setting, max_tokens=500
        )
        assert isinstance(done.choices[0].message.parsed, Setting)

    def test_log_probabilities(self, sdk):
        done = sdk.chat.completions.create(
            model="tiny", messages=user("x"), logprobs=True, top_logprobs=3, max_tokens=4, seed=1
        )
        for entry in done.choices[0].logprobs.content:
            assert len(entry.top_logprobs) == 3 and entry.logprob <= 0

    def test_completions_and_models(self, sdk, says):
        says(" world")
        assert sdk.completions.create(model="tiny", prompt="hello").choices[0].text == " world"
        assert [model.id for model in sdk.models.list()] == ["tiny", "other-name"]

    def test_responses(self, sdk, says):
        says("Hello!")
        done = sdk.responses.create(model="tiny", input="Hi", instructions="Be kind")
        assert done.output_text == "Hello!" and done.status == "completed"
        says("hm</think>\n\nHello!")
        with sdk.responses.stream(model="tiny", input="Hi", reasoning={"effort": "high"}) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            assert text == stream.get_final_response().output_text == "Hello!"

    def test_responses_with_tools(self, sdk):
        tools = [{"type": "function", "name": "set", "parameters": SCHEMA, "strict": True}]
        with sdk.responses.stream(
            model="tiny", input="x", tools=tools, tool_choice="required", parallel_tool_calls=False
        ) as stream:
            done = stream.get_final_response()
        call = done.output[0]
        assert call.type == "function_call" and json.loads(call.arguments).keys() == {"unit", "exact"}
        again = sdk.responses.create(
            model="tiny", max_output_tokens=2,
            input=[*user("x"), call, {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}],
        )  # fmt: skip
        assert again.status in ("completed", "incomplete")

    def test_errors_are_its_exceptions(self, sdk):
        with pytest.raises(openai.BadRequestError) as error:
            sdk.chat.completions.create(model="tiny", messages=user("word " * 1000))
        assert error.value.code == "context_length_exceeded"
        with pytest.raises(openai.NotFoundError):
            sdk.chat.completions.create(model="gpt", messages=user("x"))


class TestAnthropic:
    def test_messages(self, claude, says):
        says("Hello!")
        done = claude.messages.create(model="tiny", max_tokens=50, messages=user("Hi"), system="Be kind")
        assert done.content[0].text == "Hello!" and done.stop_reason == "end_turn"

    def test_streaming_with_thinking(self, claude, says):
        says("hm</think>\n\nHello!")
        with claude.messages.stream(
            model="tiny",
            max_tokens=100,
            messages=user("Hi"),
            thinking={"type": "enabled", "budget_tokens": 1024},
        ) as stream:
            text = "".join(stream.text_stream)
            done = stream.get_final_message()
        assert text == "Hello!" and [block.type for block in done.content] == ["thinking", "text"]
        assert done.content[0].thinking == "hm"

    def test_tools_in_both_directions(self, claude, says):
        tools = [{"name": "set", "input_schema": SCHEMA}]
        with claude.messages.stream(
            model="tiny", max_tokens=1000, messages=user("x"), tools=tools, tool_choice={"type": "any"}
        ) as stream:
            done = stream.get_final_message()
        block = done.content[0]
        assert done.stop_reason == "tool_use" and block.input["unit"] in ("C", "F")
        says("Set.")
        result = [{"type": "tool_result", "tool_use_id": block.id, "content": "ok"}]
        history = [
            *user("x"),
            {"role": "assistant", "content": done.content},
            {"role": "user", "content": result},
        ]
        done = claude.messages.create(model="tiny", max_tokens=50, messages=history, tools=tools)
        assert done.content[0].text == "Set."

    def test_tokens_and_errors(self, claude):
        assert claude.messages.count_tokens(model="tiny", messages=user("Hi")).input_tokens > 10
        with pytest.raises(anthropic.BadRequestError):
            claude.messages.create(model="tiny", max_tokens=1, messages=user("word " * 1000))


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
class TestCurl:
    def run(self, *arguments):
        return subprocess.run(
            ["curl", "-sS", *arguments], capture_output=True, text=True, timeout=60, check=True
        ).stdout

    def test_chat_without_a_content_type_of_json(self, live, says):
        says("Hello!")
        body = json.dumps({"messages": user("Hi")})
        got = json.loads(self.run(f"{live.url}/v1/chat/completions", "-d", body))
        assert got["choices"][0]["message"]["content"] == "Hello!"

    def test_a_stream(self, live, says):
        says("Hello!")
        body = json.dumps({"messages": user("Hi"), "stream": True})
        lines = self.run("-N", f"{live.url}/v1/chat/completions", "-d", body).split("\n\n")
        assert lines[-2] == "data: [DONE]" and len(lines) > 7
