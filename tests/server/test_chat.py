"""/v1/chat/completions: answers, streams, sampling, log-probabilities."""

import json

import pytest

from mindnano import SamplingParams
from mindnano.server import sse

from .running import events, user

HELLO = user("Hello there")


def stream(client, **body):
    with client.stream("POST", "/v1/chat/completions", json={"stream": True} | body) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        return list(events(response))


def chunks(found):
    assert found[-1] == (None, "[DONE]")
    return [json.loads(data) for name, data in found[:-1] if name is None]


def text_of(found):
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks(found) for choice in chunk["choices"]
    )


def test_a_greedy_answer_is_the_engines(ask, llm):
    got = ask(messages=HELLO, temperature=0, max_tokens=12, ignore_eos=True)
    want = llm.tokenizer.decode(
        [int(t) for t in _greedy(llm, llm.chat_tokens(HELLO), 12)],
    )
    assert got["choices"][0]["message"]["content"] == want
    assert got["choices"][0]["finish_reason"] == "length"
    assert got["object"] == "chat.completion" and got["model"] == "tiny"


def _greedy(llm, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(llm.logits(tokens)[-1].argmax())
    return tokens[len(prompt) :]


def test_usage_and_timings_are_the_engines(ask, llm):
    got = ask(messages=user("usage of a prompt that nobody sent before"), max_tokens=7, ignore_eos=True)
    prompt = len(llm.chat_tokens(user("usage of a prompt that nobody sent before")))
    usage = got["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (
        prompt,
        7,
        prompt + 7,
    )
    assert got["timings"]["prompt_tokens"] == prompt
    assert got["timings"]["completion_tokens"] == 7
    assert got["timings"]["kv_layout"] == "latent"
    assert got["timings"].keys() >= {
        "ttft_s",
        "decode_tok_s",
        "cached_tokens",
        "stage_s",
        "mla_s",
        "mla_calls",
    }
    again = ask(messages=user("usage of a prompt that nobody sent before"), max_tokens=1)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == prompt


def test_a_stream_says_the_same(ask, client):
    body = {"messages": HELLO, "seed": 11, "temperature": 1.5, "max_tokens": 40, "ignore_eos": True}
    whole = ask(**body)["choices"][0]["message"]["content"]
    found = stream(client, **body)
    assert text_of(found) == whole
    parsed = chunks(found)
    assert parsed[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert parsed[-1]["choices"][0]["finish_reason"] == "length"
    assert parsed[-1]["timings"]["completion_tokens"] == 40
    assert not any("usage" in chunk for chunk in parsed)
    assert not any("timings" in chunk for chunk in parsed[:-1])


def test_usage_comes_in_a_last_chunk_without_choices_if_asked_for(client):
    found = chunks(
        stream(client, messages=HELLO, max_tokens=3, ignore_eos=True, stream_options={"include_usage": True})
    )
    assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] == 3
    assert not any("usage" in chunk for chunk in found[:-1])


def test_a_seed_repeats_and_choices_differ(ask):
    body = {"messages": HELLO, "seed": 3, "n": 3, "max_tokens": 24, "ignore_eos": True, "temperature": 1}
    first, second = ([choice["message"]["content"] for choice in ask(**body)["choices"]] for _ in range(2))
    assert first == second
    assert len(set(first)) == 3
    alone = ask(**body | {"n": 1})["choices"][0]["message"]["content"]
    assert alone == first[0]


def test_choices_share_the_prompt(ask, llm):
    text = "three choices of one prompt " * 8
    got = ask(messages=user(text), n=3, max_tokens=2, ignore_eos=True)
    assert got["usage"]["prompt_tokens"] == len(llm.chat_tokens(user(text)))
    assert got["usage"]["completion_tokens"] == 6


def test_choices_are_streamed_apart(client):
    found = chunks(stream(client, messages=HELLO, n=2, max_tokens=5, ignore_eos=True, seed=1))
    ends = [c["choices"][0] for c in found if c["choices"][0]["finish_reason"]]
    assert sorted(choice["index"] for choice in ends) == [0, 1]
    assert sum("timings" in chunk for chunk in found) == 1


def test_stop_strings_end_the_answer_and_are_not_in_it(ask, client, says):
    says("one two STOP three")
    got = ask(messages=HELLO, stop="STOP")
    assert got["choices"][0]["message"]["content"] == "one two "
    assert got["choices"][0]["finish_reason"] == "stop"
    says("one two STOP three")
    assert text_of(stream(client, messages=HELLO, stop=["never", " three", "wo ST"])) == "one t"


def test_a_bias_decides(ask, llm):
    token = llm.tokenizer.encode("Q")[0]
    got = ask(messages=HELLO, logit_bias={str(token): 100}, max_tokens=5, ignore_eos=True)
    assert got["choices"][0]["message"]["content"] == "QQQQQ"


def test_every_sampling_parameter_reaches_the_sampler(ask, llm):
    given = {
        "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "presence_penalty": 0.5,
        "frequency_penalty": -0.25, "repetition_penalty": 1.1, "seed": 7, "max_tokens": 1,
    }  # fmt: skip
    ask(
        messages=HELLO,
        **given,
        stop=["a", "b"],
        logit_bias={"5": -3},
        logprobs=True,
        top_logprobs=2,
        ignore_eos=True,
    )
    used = llm.params[-1]
    assert {name: getattr(used, name) for name in given} == given
    assert (used.stop, used.logit_bias, used.logprobs, used.ignore_eos) == (("a", "b"), {5: -3.0}, 2, True)
    ask(messages=HELLO, max_tokens=None, max_completion_tokens=1, seed=-1)
    assert (llm.params[-1].max_tokens, llm.params[-1].seed) == (1, (1 << 64) - 1)


@pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1}, {"temperature": 0}])
def test_filters_reach_the_sampler(ask, filters):
    greedy = ask(messages=HELLO, temperature=0, max_tokens=8, ignore_eos=True)
    got = ask(messages=HELLO, max_tokens=8, ignore_eos=True, **filters)
    assert got["choices"][0]["message"] == greedy["choices"][0]["message"]


def test_log_probabilities_are_the_models(ask, llm):
    got = ask(messages=HELLO, temperature=0, max_tokens=6, ignore_eos=True, logprobs=True, top_logprobs=3)
    done = llm.generate(
        llm.chat_tokens(HELLO), SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, logprobs=3)
    )
    entries = got["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in entries] == pytest.approx([one.logprob for one in done.logprobs])
    for entry, one in zip(entries, done.logprobs, strict=True):
        assert bytes(entry["bytes"]) == llm.tokenizer.token_bytes(one.token)
        assert [top["logprob"] for top in entry["top_logprobs"]] == pytest.approx([p for _, p in one.top])
        assert max(top["logprob"] for top in entry["top_logprobs"]) == entry["logprob"]


def test_logprobs_without_top_logprobs(ask):
    got = ask(messages=HELLO, max_tokens=2, ignore_eos=True, logprobs=True)
    entries = got["choices"][0]["logprobs"]["content"]
    assert len(entries) == 2 and all(entry["top_logprobs"] == [] for entry in entries)


def test_streamed_log_probabilities_are_those_of_the_whole(ask, client):
    body = {"messages": HELLO, "seed": 9, "max_tokens": 30, "ignore_eos": True, "logprobs": True}
    whole = ask(**body)["choices"][0]["logprobs"]["content"]
    parts = [
        entry
        for chunk in chunks(stream(client, **body))
        for choice in chunk["choices"]
        for entry in (choice.get("logprobs") or {}).get("content", [])
    ]
    assert parts == whole


def test_log_probabilities_end_where_a_stop_string_begins(ask, says):
    says("abSTOPcd")
    got = ask(messages=HELLO, stop="STOP", logprobs=True)
    assert [entry["token"] for entry in got["choices"][0]["logprobs"]["content"]] == ["a", "b"]


def test_bytes_that_are_no_text_become_replacement_characters(ask, llm):
    token = llm.tokenizer.encode("é")[0]  # the first of its two bytes
    got = ask(messages=HELLO, logit_bias={str(token): 100}, max_tokens=3, ignore_eos=True)
    assert got["choices"][0]["message"]["content"] == "\ufffd" * 3


def test_an_answer_is_gone_on_with(ask, llm, says):
    says(" and more")
    history = [*HELLO, {"role": "assistant", "content": "The answer is"}]
    got = ask(messages=history, continue_final_message=True)
    assert got["choices"][0]["message"]["content"] == " and more"
    assert llm.prompts[-1].endswith("<think></think>The answer is")


def test_reasoning_is_gone_on_with(ask, llm, says):
    says(" so</think>\n\nYes")
    history = [*HELLO, {"role": "assistant", "reasoning_content": "I think", "content": ""}]
    message = ask(messages=history, continue_final_message=True)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (" so", "Yes")
    assert llm.prompts[-1].endswith("<think>I think")


def test_every_kind_of_message_reaches_the_prompt(ask, llm):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    ask(
        messages=[
            {"role": "developer", "content": "rules"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "result"},
        ],
        max_tokens=1,
    )
    prompt = llm.prompts[-1]
    for piece in ("<role>SYSTEM</role>rules", "<role>HUMAN</role>ab", "<tool_call>f<arg_key>x", "\nresult\n"):
        assert piece in prompt, piece


def test_progress_is_told_where_asked_for(client):
    text = "a long prompt that takes a while " * 50
    found = stream(client, messages=user(text), max_tokens=1, progress=True)
    told = [json.loads(data) for name, data in found if name == "mindnano.progress"]
    assert told and all(one["tokens_done"] <= one["tokens_total"] for one in told)
    assert set(told[0]) == {"tokens_done", "tokens_total", "seconds_left"}
    with client.stream(
        "POST", "/v1/chat/completions", json={"messages": user("x" + text), "max_tokens": 1, "stream": True},
        headers={"X-MindNano-Progress": "1"},
    ) as response:  # fmt: skip
        assert any(name == "mindnano.progress" for name, _ in events(response))
    found = stream(client, messages=user("y" + text), max_tokens=1)
    assert not any(name == "mindnano.progress" for name, _ in found)


def test_comments_keep_a_silent_stream_alive(client, monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.01)
    found = stream(client, messages=user("another long prompt, " * 60), max_tokens=1)
    assert (":", "keep-alive") in found
    chunks([one for one in found if one[0] != ":"])


def test_headers_come_before_the_first_token(client):
    with client.stream(
        "POST", "/v1/chat/completions",
        json={"messages": user("and one more, " * 100), "max_tokens": 1, "stream": True},
    ) as response:  # fmt: skip
        first = next(events(response))
        assert json.loads(first[1])["choices"][0]["delta"]["role"] == "assistant"
        response.close()


def test_the_model_answers_under_each_of_its_names(ask, client):
    assert ask(messages=HELLO, max_tokens=1, model="other-name")["model"] == "other-name"
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["tiny", "other-name"]
    assert client.get("/v1/models/tiny").json()["id"] == "tiny"
    assert client.get("/v1/models/nope").status_code == 404
