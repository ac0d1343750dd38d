"""/v1/completions, /v1/responses, /v1/messages, /tokenize and /detokenize."""

import json

import pytest

from .running import events, user


def sent(client, path, **body):
    with client.stream("POST", path, json={"stream": True} | body) as response:
        assert response.status_code == 200, response.read()
        return list(events(response))


def post(client, path, **body):
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


class TestCompletions:
    def test_texts_and_token_ids_are_the_same_prompt(self, client, llm):
        more = {"temperature": 0, "max_tokens": 5, "ignore_eos": True}
        by_text = post(client, "/v1/completions", prompt="abc", **more)
        by_ids = post(client, "/v1/completions", prompt=llm.tokenizer.encode("abc"), **more)
        assert by_text["choices"] == by_ids["choices"]
        assert llm.prompts[-1] == "abc"
        want = llm.generate("abc", llm.params[-1])
        assert by_text["choices"][0]["text"] == want.text

    def test_several_prompts_several_times(self, client):
        got = post(
            client, "/v1/completions", prompt=["ab", "cde"], n=2, max_tokens=2, seed=1, ignore_eos=True
        )
        assert [choice["index"] for choice in got["choices"]] == [0, 1, 2, 3]
        assert got["usage"]["prompt_tokens"] == 5 and got["usage"]["completion_tokens"] == 8
        ids = post(client, "/v1/completions", prompt=[[97, 98], [99]], max_tokens=1)
        assert len(ids["choices"]) == 2

    def test_an_echo_begins_with_the_prompt(self, client, says):
        says(" world")
        assert (
            post(client, "/v1/completions", prompt="hello", echo=True)["choices"][0]["text"] == "hello world"
        )
        found = sent(client, "/v1/completions", prompt="hello", echo=True)
        texts = [json.loads(data)["choices"][0]["text"] for _, data in found[:-1]]
        assert "".join(texts) == "hello world" and found[-1] == (None, "[DONE]")

    def test_log_probabilities_have_offsets(self, client, says):
        says("ab\u00e9c")
        got = post(client, "/v1/completions", prompt="x", logprobs=1)["choices"][0]["logprobs"]
        assert got["text_offset"] == [0, 1, 2, 2, 3]
        assert got["tokens"][0] == "a" and len(got["top_logprobs"]) == len(got["token_logprobs"]) == 5

    def test_markers_are_text(self, client, says):
        says("<think>x</think>y<tool_call>")
        got = post(client, "/v1/completions", prompt="x")
        assert got["choices"][0]["text"] == "<think>x</think>y<tool_call>"

    def test_a_stream_has_usage_where_asked_for(self, client):
        found = sent(
            client, "/v1/completions", prompt="x", max_tokens=3, ignore_eos=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        last = json.loads(found[-2][1])
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 3


class TestResponses:
    def test_an_answer(self, client, says):
        says("Hello")
        got = post(client, "/v1/responses", input="Hi", instructions="Be kind", metadata={"a": "b"})
        assert got["object"] == "response" and got["status"] == "completed" and got["store"] is False
        assert got["output"][0]["content"][0]["text"] == "Hello"
        assert got["metadata"] == {"a": "b"} and got["instructions"] == "Be kind"
        usage = got["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert got["timings"]["completion_tokens"] == usage["output_tokens"]

    def test_one_that_is_cut_is_incomplete(self, client, says):
        says("Hello")
        got = post(client, "/v1/responses", input="Hi", max_output_tokens=1)
        assert got["status"] == "incomplete"
        assert got["incomplete_details"] == {"reason": "max_output_tokens"}

    def test_the_items_of_the_input_are_a_conversation(self, client, llm):
        post(
            client,
            "/v1/responses",
            input=[
                {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
                {
                    "type": "reasoning",
                    "id": "rs",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "r"}],
                },
                {"role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x": 1}'},
                {"type": "function_call_output", "call_id": "c", "output": "three"},
            ],
            max_output_tokens=1,
        )
        prompt = llm.prompts[-1]
        assert "<role>HUMAN</role>one" in prompt
        assert "</think>two<tool_call>f<arg_key>x</arg_key>\n<arg_value>1</arg_value>" in prompt
        assert "<tool_response>\nthree\n</tool_response>" in prompt

    def test_events_are_numbered_and_add_up(self, client, says):
        says("hm</think>\n\nYes")
        found = sent(client, "/v1/responses", input="x", reasoning={"effort": "high"})
        parsed = [json.loads(data) for _, data in found]
        assert [one["sequence_number"] for one in parsed] == list(range(len(parsed)))
        assert all(name == one["type"] for (name, _), one in zip(found, parsed, strict=True))
        assert [one["type"] for one in parsed[:2]] == ["response.created", "response.in_progress"]
        assert parsed[0]["response"]["status"] == "in_progress"
        done = parsed[-1]
        assert done["type"] == "response.completed"
        for kind, item in (("reasoning_text", 0), ("output_text", 1)):
            text = "".join(one["delta"] for one in parsed if one["type"] == f"response.{kind}.delta")
            assert text == done["response"]["output"][item]["content"][0]["text"]
        types = [one["type"] for one in parsed]
        assert types.count("response.output_item.added") == types.count("response.output_item.done") == 2

    def test_log_probabilities(self, client, says):
        says("ab")
        got = post(
            client, "/v1/responses", input="x", include=["message.output_text.logprobs"], top_logprobs=2
        )
        entries = got["output"][0]["content"][0]["logprobs"]
        assert [entry["token"] for entry in entries] == ["a", "b"]
        assert len(entries[0]["top_logprobs"]) == 2


class TestMessages:
    def test_an_answer(self, client, says, llm):
        says("Hello")
        body = {"system": [{"type": "text", "text": "Be kind", "cache_control": {"type": "ephemeral"}}]}
        got = post(client, "/v1/messages", messages=user("Hi"), max_tokens=50, **body)
        assert (got["type"], got["role"], got["stop_reason"]) == ("message", "assistant", "end_turn")
        assert got["content"] == [{"type": "text", "text": "Hello"}]
        assert "<role>SYSTEM</role>Be kind" in llm.prompts[-1]
        usage = got["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == got["timings"]["prompt_tokens"]

    @pytest.mark.parametrize(
        ("text", "more", "reason", "stop"),
        [("one STOP two", {"stop_sequences": ["STOP"]}, "stop_sequence", "STOP"),
         ("too long", {"max_tokens": 3}, "max_tokens", None)],
    )  # fmt: skip
    def test_why_it_ended(self, client, says, text, more, reason, stop):
        says(text)
        got = post(client, "/v1/messages", messages=user("x"), **({"max_tokens": 50} | more))
        assert (got["stop_reason"], got["stop_sequence"]) == (reason, stop)

    def test_events_add_up(self, client, says):
        says("hm</think>\n\nYes")
        found = sent(
            client, "/v1/messages", messages=user("x"), max_tokens=60,
            thinking={"type": "enabled", "budget_tokens": 1000},
        )  # fmt: skip
        parsed = [json.loads(data) for _, data in found]
        assert [name for name, _ in found] == [one["type"] for one in parsed]
        kinds = [one["type"] for one in parsed if one["type"] != "content_block_delta"]
        block = ["content_block_start", "content_block_stop"]
        assert kinds == ["message_start", "ping", *block, *block, "message_delta", "message_stop"]
        assert parsed[0]["message"]["content"] == [] and parsed[0]["message"]["usage"]["output_tokens"] == 0
        deltas = [one["delta"] for one in parsed if one["type"] == "content_block_delta"]
        assert "".join(d.get("thinking", "") for d in deltas) == "hm"
        assert "".join(d.get("text", "") for d in deltas) == "Yes"
        assert parsed[-2]["delta"]["stop_reason"] == "end_turn"
        assert parsed[-2]["usage"]["output_tokens"] > 0

    def test_a_last_answer_is_gone_on_with(self, client, says, llm):
        says(" blue")
        got = post(
            client, "/v1/messages", max_tokens=20,
            messages=[*user("Which?"), {"role": "assistant", "content": "The sky is"}],
        )  # fmt: skip
        assert got["content"][0]["text"] == " blue"
        assert llm.prompts[-1].endswith("<think></think>The sky is")

    def test_tokens_are_counted(self, client, llm):
        got = post(client, "/v1/messages/count_tokens", messages=user("Hi"), system="Be kind")
        messages = [{"role": "system", "content": "Be kind"}, *user("Hi")]
        assert got == {"input_tokens": len(llm.chat_tokens(messages))}


class TestTokens:
    def test_a_text(self, client, llm):
        got = post(client, "/tokenize", prompt="héllo", with_pieces=True)
        assert got["tokens"] == llm.tokenizer.encode("héllo") and got["count"] == 6
        assert got["max_model_len"] == 2048 and got["pieces"][0] == "h"
        assert post(client, "/detokenize", tokens=got["tokens"])["prompt"] == "héllo"

    def test_special_tokens_are_text_unless_meant(self, client):
        assert post(client, "/tokenize", prompt="<|role_end|>")["count"] > 1
        assert post(client, "/tokenize", content="<|role_end|>", parse_special=True)["count"] == 1
        assert post(client, "/detokenize", tokens=[259])["content"] == "<|role_end|>"

    def test_a_conversation(self, client, llm):
        got = post(client, "/tokenize", messages=user("x"), chat_template_kwargs={"enable_thinking": True})
        assert got["tokens"] == llm.chat_tokens(user("x"), thinking=True)
