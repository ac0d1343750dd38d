"""/v1/sessions, and conversations that are saved when the server stops."""

import json

import pytest

from .running import Live, ScriptedLLM, Started, user

TEXT = "Remember this long story of a machine with little memory. " * 3


@pytest.fixture
def told(client):
    """A conversation that was asked once, so that something is kept of it."""
    client.post("/v1/chat/completions", json={"messages": user(TEXT), "max_tokens": 2})
    return user(TEXT)


def test_a_session_goes_round(client, told, llm):
    settings = {"temperature": 0.5, "nested": [1, None]}
    made = client.post("/v1/sessions", json={"name": "my story", "messages": told, "settings": settings})
    assert made.status_code == 201
    entry = made.json()
    assert entry["name"] == "my story" and entry["tokens"] == len(llm.chat_tokens(told))
    assert entry["bytes"] > 1000 and entry["message_count"] == 1 and entry["problem"] == ""
    assert entry in client.get("/v1/sessions").json()["data"]
    shown = client.get("/v1/sessions/my%20story").json()
    assert shown["messages"] == told and shown["settings"] == settings
    loaded = client.post("/v1/sessions/my%20story/load").json()
    assert loaded["messages"] == told and loaded["reusable_tokens"] == entry["tokens"]
    renamed = client.patch("/v1/sessions/my%20story", json={"name": "другое"})
    assert renamed.status_code == 200 and renamed.json()["name"] == "другое"
    assert client.get("/v1/sessions/my%20story").status_code == 404
    assert client.delete("/v1/sessions/другое").json() == {"name": "другое", "deleted": True}
    assert client.delete("/v1/sessions/другое").status_code == 404


def test_a_loaded_session_isnt_computed_again(model, tmp_path):
    name, want = "kept", None
    for _ in range(2):
        with ScriptedLLM(model, context=1024, slots=1, cache_budget=32 << 20) as llm:
            live = Live(llm, session_dir=tmp_path)
            with live.client() as client:
                if want is not None:
                    assert client.post(f"/v1/sessions/{name}/load").json()["reusable_tokens"] > 100
                body = {"messages": user(TEXT), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
                got = client.post("/v1/chat/completions", json=body).json()
                if want is not None:
                    assert got["choices"] == want
                    assert got["timings"]["cached_tokens"] == got["timings"]["prompt_tokens"]
                want = got["choices"]
                client.post("/v1/sessions", json={"name": name, "messages": user(TEXT)})
            live.stop()


def test_a_conversation_with_tools_is_found_again(client):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    client.post("/v1/chat/completions", json={"messages": user(TEXT), "max_tokens": 1, "tools": tools})
    made = client.post("/v1/sessions", json={"name": "with tools", "messages": user(TEXT), "tools": tools})
    assert made.status_code == 201, made.text
    loaded = client.post("/v1/sessions/with tools/load").json()
    assert loaded["settings"]["tools"][0]["function"]["name"] == "f"
    assert loaded["reusable_tokens"] == made.json()["tokens"] > len(TEXT)


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 101, "a\nb", " a", "a\\b"])
def test_a_name_that_cant_be_one_is_refused(client, told, name):
    response = client.post("/v1/sessions", json={"name": name, "messages": told})
    assert response.status_code == 400, response.text


def test_what_isnt_there_and_what_is_there_already(client, told):
    for method, path in (("GET", ""), ("POST", "/load"), ("DELETE", "")):
        response = client.request(method, "/v1/sessions/nope" + path)
        assert response.status_code == 404 and response.json()["error"]["code"] == "session_not_found"
    for name in ("one", "two"):
        assert client.post("/v1/sessions", json={"name": name, "messages": told}).status_code == 201
    again = client.post("/v1/sessions", json={"name": "one", "messages": told, "replace": False})
    assert again.status_code == 409 and again.json()["error"]["code"] == "session_exists"
    assert client.patch("/v1/sessions/one", json={"name": "two"}).status_code == 409
    assert client.patch("/v1/sessions/one", json={"name": "two", "replace": True}).status_code == 200


def test_nothing_can_be_saved_without_a_cache(model, tmp_path):
    with ScriptedLLM(model, context=512, slots=1, cache_budget=0) as llm:
        live = Live(llm, session_dir=tmp_path)
        with live.client() as client:
            client.post("/v1/chat/completions", json={"messages": user("x"), "max_tokens": 1})
            response = client.post("/v1/sessions", json={"name": "x", "messages": user("x")})
            assert response.status_code == 400
            assert "nothing of this conversation" in response.json()["error"]["message"]
        live.stop()


def test_a_damaged_session_leaves_the_server_as_it_was(client, live, told):
    client.post("/v1/sessions", json={"name": "damaged", "messages": told})
    newest = max(live.settings.session_dir.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(newest.read_bytes())
    data[-100] ^= 1
    newest.write_bytes(data)
    response = client.post("/v1/sessions/damaged/load")
    assert response.status_code == 400 and "damaged" in response.json()["error"]["message"]
    assert client.post("/v1/chat/completions", json={"messages": told, "max_tokens": 1}).status_code == 200
    newest.unlink()


def test_a_session_of_another_model_is_refused(client, model, told, live, tmp_path):
    client.post("/v1/sessions", json={"name": "other kind", "messages": told})
    with ScriptedLLM(model, context=512, slots=1, kv="int8") as llm:
        other = Live(llm, session_dir=live.settings.session_dir)
        with other.client() as there:
            response = there.post("/v1/sessions/other kind/load")
            assert response.status_code == 409 and response.json()["error"]["code"] == "session_mismatch"
        other.stop()


def test_sessions_can_be_switched_off(llm):
    live = Live(llm, session_dir=None)
    with live.client() as client:
        for response in (
            client.get("/v1/sessions"),
            client.post("/v1/chat/completions", json={"messages": user("x"), "session": "s"}),
        ):
            assert response.status_code == 404 and response.json()["error"]["code"] == "sessions_off"
        assert client.get("/props").json()["sessions"] is False
    live.stop()


@pytest.mark.parametrize("streams", [False, True])
def test_a_marked_conversation_is_saved_at_the_end(model, tmp_path, streams):
    server = Started(model, "--ctx", "1K", "--session-dir", tmp_path, "--name", "tiny")
    with server.client() as client:
        body = {
            "messages": user(TEXT),
            "max_tokens": 4,
            "ignore_eos": True,
            "session": "at the end",
            "stream": streams,
        }
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert client.get("/v1/sessions").json()["data"] == []
    assert server.stop() == 0
    again = Started(model, "--ctx", "1K", "--session-dir", tmp_path)
    with again.client() as client:
        saved = client.get("/v1/sessions/at the end").json()
        assert saved["messages"][0] == user(TEXT)[0] and saved["messages"][1]["role"] == "assistant"
        if not streams:
            assert saved["messages"][1]["content"] == answer.json()["choices"][0]["message"]["content"]
        assert client.post("/v1/sessions/at the end/load").json()["reusable_tokens"] > 100
    again.stop()


def test_settings_are_bounded(client, told):
    body = {"name": "big", "messages": told, "settings": {"x": "y" * (65 << 10)}}
    response = client.post("/v1/sessions", content=json.dumps(body))
    assert response.status_code == 400 and "limit" in response.json()["error"]["message"]
