"""litellm, langchain-openai and simonw's llm against a running server (make clients)."""

import json
import os
import subprocess
import sys

import pytest

from .running import user

pytestmark = pytest.mark.clients

SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "exact": {"type": "boolean"}},
    "required": ["unit", "exact"],
    "additionalProperties": False,
}


class TestLitellm:
    @pytest.fixture
    def complete(self, live, monkeypatch):
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm

        def complete(**more):
            return litellm.completion(
                model="openai/tiny", api_base=f"{live.url}/v1", api_key="none", timeout=60, **more
            )

        return complete

    def test_chat(self, complete, says):
        says("Hello!")
        done = complete(messages=user("Hi"))
        assert done.choices[0].message.content == "Hello!" and done.usage.completion_tokens == 7

    def test_streaming_with_reasoning(self, complete, says):
        says("hm</think>\n\nHello!")
        deltas = [c.choices[0].delta for c in complete(messages=user("Hi"), stream=True, reasoning_effort="high",
                                                       allowed_openai_params=["reasoning_effort"])]  # fmt: skip
        assert "".join(delta.content or "" for delta in deltas) == "Hello!"
        assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "hm"

    def test_tools(self, complete):
        tools = [{"type": "function", "function": {"name": "set", "parameters": SCHEMA}}]
        done = complete(messages=user("x"), tools=tools, tool_choice="required", max_tokens=1000)
        call = done.choices[0].message.tool_calls[0].function
        assert call.name == "set" and json.loads(call.arguments).keys() == {"unit", "exact"}

    def test_the_anthropic_form(self, live, says):
        import litellm

        says("Hello!")
        done = litellm.completion(
            model="anthropic/tiny", api_base=live.url, api_key="none", max_tokens=50, messages=user("Hi")
        )
        assert done.choices[0].message.content == "Hello!"


class TestLangchain:
    @pytest.fixture
    def chat(self, live):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model="tiny", base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=60)

    def test_chat_and_streaming(self, chat, says):
        says("Hello!")
        done = chat.invoke("Hi")
        assert done.content == "Hello!" and done.usage_metadata["output_tokens"] == 7
        says("Hello!")
        assert "".join(chunk.content for chunk in chat.stream("Hi")) == "Hello!"

    def test_tools_in_both_directions(self, chat, says):
        from langchain_core.messages import HumanMessage, ToolMessage

        def set(unit: str, exact: bool) -> str:
            """Set it."""
            return unit

        bound = chat.bind_tools([set], tool_choice="any")
        says("<tool_call>set<arg_key>unit</arg_key>\n<arg_value>C</arg_value>\n"
             "<arg_key>exact</arg_key>\n<arg_value>true</arg_value>\n</tool_call>")  # fmt: skip
        asked = bound.invoke("x")
        assert asked.tool_calls[0]["args"] == {"unit": "C", "exact": True}
        says("Set.")
        history = [HumanMessage("x"), asked, ToolMessage("ok", tool_call_id=asked.tool_calls[0]["id"])]
        assert chat.bind_tools([set]).invoke(history).content == "Set."

    def test_structured_output(self, chat):
        from pydantic import BaseModel

        class Setting(BaseModel):
            exact: bool
            level: int

        bound = chat.bind(max_tokens=500).with_structured_output(Setting)
        assert isinstance(bound.invoke("x"), Setting)

    def test_log_probabilities(self, chat):
        done = chat.bind(logprobs=True, top_logprobs=2, max_tokens=3).invoke("x")
        assert len(done.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2


class TestLlm:
    """The program, with the server in its extra-openai-models.yaml."""

    @pytest.fixture
    def llm_home(self, live, tmp_path):
        (tmp_path / "extra-openai-models.yaml").write_text(
            f"- model_id: mindnano\n  model_name: tiny\n  api_base: {live.url}/v1\n  supports_schema: true\n"
            "  supports_tools: true\n"
        )
        return tmp_path

    def run(self, home, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, timeout=120,
            env=os.environ | {"LLM_USER_PATH": str(home), "OPENAI_API_KEY": "none"}, check=True,
        ).stdout  # fmt: skip

    @pytest.mark.parametrize("options", [(), ("--no-stream",)])
    def test_a_prompt(self, llm_home, says, options):
        says("Hello!")
        assert self.run(llm_home, "prompt", "-m", "mindnano", *options, "Hi").strip() == "Hello!"

    def test_a_schema(self, llm_home):
        got = self.run(
            llm_home, "prompt", "-m", "mindnano", "--schema", "exact bool", "-o", "max_tokens", "300", "x"
        )
        assert isinstance(json.loads(got)["exact"], bool)
