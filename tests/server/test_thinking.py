"""Reasoning: when there is some, for how long, and that it is returned apart."""

import pytest

from .running import user
from .test_chat import chunks, stream


def test_reasoning_is_returned_apart(ask, client, says):
    says("First this.\n\nThen that.\n</think>\n\nThe answer")
    body = {"messages": user("x"), "chat_template_kwargs": {"enable_thinking": True}}
    message = ask(**body)["choices"][0]["message"]
    assert message["reasoning_content"] == "First this.\n\nThen that."
    assert message["content"] == "The answer"
    says("First this.\n\nThen that.\n</think>\n\nThe answer")
    deltas = [c["choices"][0]["delta"] for c in chunks(stream(client, **body, max_tokens=200))]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == message["reasoning_content"]
    assert "".join(d.get("content") or "" for d in deltas) == "The answer"


@pytest.mark.parametrize(
    ("more", "thinks"),
    [({}, False), ({"chat_template_kwargs": {"enable_thinking": True}}, True), ({"reasoning_effort": "low"}, True),
     ({"reasoning_effort": "none"}, False), ({"chat_template_kwargs": {"enable_thinking": False}}, False)],
)  # fmt: skip
def test_who_asks_decides_whether_to_think(ask, llm, more, thinks):
    ask(messages=user("x"), max_tokens=1, **more)
    assert llm.prompts[-1].endswith("<think>") == thinks


def test_the_servers_default_is_used_where_nobody_says(ask, llm, live, monkeypatch):
    monkeypatch.setattr(
        live.service, "settings", live.settings.__class__(**vars(live.settings) | {"thinking": True})
    )
    ask(messages=user("x"), max_tokens=1)
    assert llm.prompts[-1].endswith("<think>")


def test_stop_strings_count_in_the_answer_only(ask, says):
    says("a. b</think>c. d")
    message = ask(messages=user("x"), reasoning_effort="high", stop=". ")["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("a. b", "c")


@pytest.mark.parametrize("format_", [None, {"type": "json_object"}])
def test_a_budget_ends_the_reasoning(client, format_):
    body = {"messages": user("x"), "max_tokens": 60, "thinking": {"type": "enabled", "budget_tokens": 12}}
    if format_:
        body["output_config"] = {"format": {"type": "json_schema", "schema": {"enum": [5]}}}
    got = client.post("/v1/messages", json=body).json()
    kinds = [block["type"] for block in got["content"]]
    assert kinds[0] == "thinking" and kinds[-1] == "text"
    if format_:
        assert got["content"][-1]["text"] == "5"
    assert len(got["content"][0]["thinking"]) <= 12 * 8


def test_an_effort_is_a_budget(ask, llm):
    got = ask(messages=user("x"), reasoning_effort="minimal", max_tokens=400, seed=1, logit_bias={
        str(token): -100 for token in llm.eos_token_ids})  # fmt: skip
    details = got["usage"]["completion_tokens_details"]
    assert 200 < details["reasoning_tokens"] <= 256 + len("\n</think>\n\n")
    assert got["choices"][0]["message"]["content"]


def test_omitted_reasoning_is_left_out(client, says):
    says("secret</think>\n\nopen")
    body = {"messages": user("x"), "max_tokens": 60, "thinking": {"type": "adaptive", "display": "omitted"}}
    assert client.post("/v1/messages", json=body).json()["content"] == [{"type": "text", "text": "open"}]


def test_log_probabilities_are_of_the_content_only(ask, says):
    says("hm</think>\n\nab")
    got = ask(messages=user("x"), reasoning_effort="high", logprobs=True)
    assert [entry["token"] for entry in got["choices"][0]["logprobs"]["content"]] == ["a", "b"]


def test_reasoning_tokens_are_counted(ask, client, says):
    says("hmm</think>yes")
    got = ask(messages=user("x"), reasoning_effort="high")
    assert got["usage"]["completion_tokens_details"]["reasoning_tokens"] == len("hmm</think>")
    says("hmm</think>yes")
    got = client.post("/v1/responses", json={"input": "x", "reasoning": {"effort": "high"}}).json()
    assert [item["type"] for item in got["output"]] == ["reasoning", "message"]
    assert got["output"][0]["content"][0]["text"] == "hmm"
    assert got["usage"]["output_tokens_details"]["reasoning_tokens"] == len("hmm</think>")
