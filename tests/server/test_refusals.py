"""What can't be served is a 4xx that names the parameter or the limit; nothing is ignored."""

import json
import time

import pytest

from mindnano.server import settings

from .running import user

ASK = {"messages": user("hi"), "max_tokens": 1}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def deep(levels):
    schema = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def schema_format(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}


REFUSED = [
    ({"nonsense": 1}, "nonsense"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "x", "extra": 1}]}, "messages[0].extra"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "type"),
    ({"messages": [{"role": "user", "content": "x", "name": 3}]}, "messages[0].name"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"min_p": 2}, "min_p"),
    ({"top_k": -1}, "top_k"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"seed": 1.5}, "seed"),
    ({"n": 0}, "n"),
    ({"n": settings.MAX_CHOICES + 1}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    ({"stop": ["x"] * (settings.MAX_STOPS + 1)}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": "x" * 2000}, "stop"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": schema_format({"type": "nonsense"})}, "response_format"),
    ({"response_format": schema_format({"type": "string", "pattern": "("})}, "response_format"),
    ({"response_format": schema_format({"type": "array", "uniqueItems": True})}, "response_format"),
    ({"response_format": schema_format({"$ref": "#/nowhere"})}, "response_format"),
    ({"response_format": schema_format(deep(settings.MAX_SCHEMA_DEPTH + 1))}, "schema"),
    ({"response_format": schema_format({"description": "x" * (settings.MAX_SCHEMA_BYTES + 1)})}, "schema"),
    ({"response_format": {"type": "grammar", "grammar": "start: ("}}, "response_format"),
    ({"response_format": {"type": "grammar", "grammar": "x" * (settings.MAX_SCHEMA_BYTES + 1)}}, "grammar"),
    ({"response_format": {"type": "regex", "regex": "("}}, "response_format"),
    ({"tools": [TOOL] * (settings.MAX_TOOLS + 1)}, "tools"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0]"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "perhaps"}, "tool_choice"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}, "reasoning_effort"),
    ({"chat_template_kwargs": {"other": 1}}, "chat_template_kwargs.other"),
    ({"ignore_eos": True, "response_format": {"type": "json_object"}}, "ignore_eos"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"store": True}, "store"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"verbosity": "low"}, "verbosity"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"metadata": {"a": "b"}}, "metadata"),
    ({"session": "a/b"}, "session"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
]


@pytest.mark.parametrize(("more", "named"), REFUSED, ids=[json.dumps(more)[:50] for more, _ in REFUSED])
def test_a_chat_that_cant_be_served_is_refused(client, more, named):
    response = client.post("/v1/chat/completions", json=ASK | more)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert named in (error["param"] or "") + error["message"]
    assert error["type"] == "invalid_request_error"
    assert "\n" not in error["message"]


def test_null_counts_as_left_out(client):
    names = ("temperature", "top_p", "stop", "tools", "response_format", "n", "stream", "user", "logit_bias")
    assert client.post("/v1/chat/completions", json=ASK | dict.fromkeys(names)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x", "suffix": "y"}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": ["a", 1]}),
        ("/v1/completions", {"prompt": [999999]}),
        ("/v1/completions", {"prompt": ["x"] * (settings.MAX_PROMPTS + 1)}),
        ("/v1/completions", {"prompt": ["x"] * 5, "n": settings.MAX_ANSWERS // 5 + 1}),
        ("/v1/completions", {"prompt": "x", "echo": True, "logprobs": 1}),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}),
        ("/v1/responses", {"input": "x", "store": True}),
        ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}]}),
        ("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
        ("/v1/responses", {"input": "x", "include": ["reasoning.encrypted_content"]}),
        ("/v1/responses", {"input": "x", "truncation": "auto"}),
        ("/v1/messages", {"messages": user("x")}),
        ("/v1/messages", {"max_tokens": 1, "messages": user("x"), "container": "y"}),
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": user("x")}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [999999]}),
    ],
)
def test_other_interfaces_refuse_too(client, path, body):
    response = client.post(path, json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"]
    assert (response.json().get("type") == "error") == path.startswith("/v1/messages")


BIG = "word " * 1000  # 5000 tokens, a context has 2048


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": user(BIG)}),
        ("/v1/chat/completions", {"messages": user(BIG), "stream": True}),
        ("/v1/completions", {"prompt": BIG}),
        ("/v1/responses", {"input": BIG}),
        ("/v1/messages", {"messages": user(BIG), "max_tokens": 1}),
    ],
)
def test_a_prompt_that_doesnt_fit_is_refused_with_both_numbers(client, path, body):
    response = client.post(path, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert "2048" in error["message"] and "50" in error["message"]
    if not path.startswith("/v1/messages"):
        assert error["code"] == "context_length_exceeded"
        assert error["context_tokens"] == 2048 and error["needed_tokens"] > 5000


def test_the_largest_prompt_that_fits_is_answered(client, llm):
    spare = 2048 - len(llm.chat_tokens(user("")))
    body = {"messages": user("x" * (spare - 1)), "ignore_eos": True}
    done = client.post("/v1/chat/completions", json=body)
    assert done.status_code == 200
    assert done.json()["choices"][0]["finish_reason"] == "length"
    body = {"messages": user("x" * spare)}
    assert client.post("/v1/chat/completions", json=body).json()["error"]["needed_tokens"] == 2049


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": "\xff"}', b"[" * 100000, b'{"a":' * 100000,
     b'{"messages":[{"role":"user","content":"\\ud800"}]}',
     b'{"messages":[{"role":"user","content":"x"}],"seed":1e999}',
     b'{"messages":[{"role":"user","content":"x"}],"logit_bias":' + b'{"a":' * 5000 + b"1" + b"}" * 5001],
)  # fmt: skip
def test_a_body_that_is_no_request_is_400(client, data):
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/tokenize"):
        response = client.post(path, content=data, headers={"content-type": "application/json"})
        assert response.status_code == 400, (path, response.text)
        assert response.json()["error"]["message"]


def test_a_deep_schema_is_refused_before_it_is_walked(client):
    data = b'{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":'
    data += b'{"name":"f","parameters":'
    data += b'{"a":' * 900 + b"1" + b"}" * 900 + b"}}]}"
    response = client.post("/v1/chat/completions", content=data)
    assert response.status_code == 400
    assert "32" in response.json()["error"]["message"] or "deep" in response.json()["error"]["message"]


def test_a_body_beyond_the_limit_is_413(client):
    response = client.post("/v1/chat/completions", content=b" " * (settings.MAX_BODY_BYTES + 1))
    assert response.status_code == 413
    assert str(settings.MAX_BODY_BYTES) in response.json()["error"]["message"]

    def pieces():
        for _ in range(20):
            yield b" " * (1 << 20)

    response = client.post("/v1/chat/completions", content=pieces())  # no Content-Length
    assert response.status_code == 413


def test_headers_beyond_the_limit_are_431(client):
    response = client.get("/health", headers={"x-large": "x" * (settings.MAX_HEADER_BYTES + 1)})
    assert response.status_code == 431
    assert str(settings.MAX_HEADER_BYTES) in response.json()["error"]["message"]
    assert client.get("/health?" + "x" * (settings.MAX_HEADER_BYTES + 1)).status_code == 431


def test_a_body_that_comes_too_slowly_is_408(client, monkeypatch):
    from mindnano.server import decode

    monkeypatch.setattr(decode, "BODY_SECONDS", 0.05)

    def pieces():
        yield b"{"
        time.sleep(0.4)
        yield b"}"

    response = client.post("/v1/chat/completions", content=pieces())
    assert response.status_code == 408


def test_a_template_that_takes_too_long_is_400(client, llm, monkeypatch):
    from mindnano.tokenizer import ChatTemplate

    slow = ChatTemplate("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
    monkeypatch.setattr(llm, "chat_template", slow)
    response = client.post("/v1/chat/completions", json=ASK)
    assert response.status_code == 400
    assert "chat template" in response.json()["error"]["message"]
    assert "steps" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("POST", "/nothing", 404), ("GET", "/v1/chat/completions", 405),
     ("POST", "/health", 405), ("DELETE", "/v1/models", 405)],
)  # fmt: skip
def test_unknown_paths_and_methods_have_error_objects(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_another_model_is_404(client):
    response = client.post("/v1/chat/completions", json=ASK | {"model": "gpt-4"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "tiny" in response.json()["error"]["message"]


def test_the_server_still_answers(client):
    assert client.post("/v1/chat/completions", json=ASK).status_code == 200
