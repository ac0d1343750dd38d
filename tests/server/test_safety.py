"""Who may ask, from where, and what is written down of it."""

import json
import logging
import socket

import httpx2
import pytest

from mindnano.errors import MindNanoError
from mindnano.server.run import bind
from mindnano.server.settings import Settings, is_loopback

from .running import Live, Started, user

ASK = {"messages": user("hi"), "max_tokens": 1}


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("127.0.0.1:8080", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:8080", True), ("192.168.1.5", True),
     ("localhost.", True), ("evil.example", False), ("127.0.0.1.evil.example", False),
     ("localhost.evil.example", False), ("", False), ("[::1", False), ("a@localhost.x", False)],
)  # fmt: skip
def test_names_that_arent_the_servers_are_refused(client, host, allowed):
    response = client.get("/health", headers={"host": host})
    assert response.status_code == (200 if allowed else 403), response.text
    if not allowed:
        assert response.json()["error"]["code"] == "host_not_allowed"


def test_a_name_can_be_allowed(llm):
    live = Live(llm, hosts=("box.example",))
    try:
        with live.client() as client:
            assert client.get("/health", headers={"host": "box.example:80"}).status_code == 200
            assert client.get("/health", headers={"host": "other.example"}).status_code == 403
    finally:
        live.stop()


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [({}, True), ({"origin": "SELF"}, True), ({"origin": "https://evil.example"}, False), ({"origin": "null"}, False),
     ({"origin": "http://localhost:1"}, False), ({"sec-fetch-site": "cross-site"}, False),
     ({"sec-fetch-site": "same-origin"}, True), ({"sec-fetch-site": "none"}, True),
     ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True)],
)  # fmt: skip
def test_other_pages_may_not_ask(client, live, headers, allowed):
    headers = {name: live.url if value == "SELF" else value for name, value in headers.items()}
    response = client.get("/health", headers=headers)
    assert response.status_code == (200 if allowed else 403)
    if headers.get("sec-fetch-mode") == "navigate":
        assert client.post("/v1/chat/completions", json=ASK, headers=headers).status_code == 403


def test_cors_is_off_unless_an_origin_is_allowed(client, llm):
    page = {"origin": "https://page.example"}
    wish = page | {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    refused = client.options("/v1/chat/completions", headers=wish)
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    live = Live(llm, origins=("https://page.example",))
    try:
        with live.client() as other:
            allowed = other.options("/v1/chat/completions", headers=wish)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == "https://page.example"
            assert other.post("/v1/chat/completions", json=ASK, headers=page).status_code == 200
            assert other.get("/health", headers={"origin": "https://evil.example"}).status_code == 403
    finally:
        live.stop()


def test_keys(llm):
    live = Live(llm, api_keys=("first-key", "second"))
    try:
        with live.client() as client:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "first-key"},
                            {"x-api-key": ""}, {"authorization": "Bearer"}, {"x-api-key": "first-ke"}):  # fmt: skip
                for method, path in (("GET", "/v1/models"), ("GET", "/props"), ("GET", "/metrics"),
                                     ("POST", "/v1/chat/completions"), ("GET", "/openapi.json")):  # fmt: skip
                    response = client.request(method, path, headers=headers)
                    assert response.status_code == 401, (path, headers)
                    assert response.json()["error"]["code"] == "invalid_api_key"
            for headers in ({"authorization": "Bearer first-key"}, {"authorization": "bearer second"},
                            {"x-api-key": "second"}):  # fmt: skip
                assert client.get("/v1/models", headers=headers).status_code == 200
            assert client.get("/health").status_code == 200
            wrong = client.post("/v1/messages", headers={"x-api-key": "no"})
            assert wrong.json()["error"]["type"] == "authentication_error"
    finally:
        live.stop()


def test_another_host_needs_a_key_or_a_waiver():
    with pytest.raises(MindNanoError, match="--api-key"):
        Settings(host="0.0.0.0")
    assert Settings(host="0.0.0.0", api_keys=("k",)).api_keys == ("k",)
    assert Settings(host="0.0.0.0", open_access=True).open_access
    for value in ("", "with\nnewline", "é"):
        with pytest.raises(MindNanoError, match="--api-key"):
            Settings(api_keys=(value,))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_loopback(host, loopback):
    assert is_loopback(host) == loopback


def test_an_address_that_is_taken_or_isnt_ours():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MindNanoError, match="choose another"):
            bind(Settings(port=taken.getsockname()[1]))
    with pytest.raises(MindNanoError, match="--host"):
        bind(Settings(host="203.0.113.7", open_access=True))


def test_every_answer_has_the_policies(client):
    for response in (
        client.get("/health"),
        client.get("/nothing"),
        client.get("/props", headers={"host": "evil"}),
    ):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_page_is_served_where_it_is_and_nothing_beside_it(llm, tmp_path):
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("<title>page</title>")
    (tmp_path / "secret.txt").write_text("secret")
    live = Live(llm, page_dir=tmp_path / "page", api_keys=("k",))
    try:
        with live.client() as client:
            shown = client.get("/")
            assert "<title>page</title>" in shown.text
            assert shown.headers["content-type"].startswith("text/html")
            assert "content-security-policy" in shown.headers
            for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "//secret.txt"):
                request = client.build_request("GET", live.url + path)
                request.url = request.url.copy_with(raw_path=path.encode())
                assert client.send(request).status_code == 404
            assert client.get("/v1/models").status_code == 401
    finally:
        live.stop()


SECRETS = ("canary-path", "canary-query", "canary-header", "canary-text", "canary-name", "canary-tool")


def poke(client):
    """Requests of every kind with a secret in each part, good and bad ones."""
    client.get("/canary-path?canary-query", headers={"x-a": "canary-header"})
    client.get("/v1/models/canary-name")
    client.post("/v1/sessions/canary-name/load")
    bodies = [
        {"messages": user("canary-text"), "max_tokens": 2},
        {"messages": user("canary-text"), "max_tokens": 2, "stream": True},
        {"messages": [{"role": "user", "content": "canary-text", "canary-name": 1}]},
        {"messages": user("canary-text"), "response_format": {"type": "regex", "regex": "(canary-text"}},
        {"messages": user("canary-text"), "tools": [{"type": "function", "function": {
            "name": "canary-tool", "parameters": {"type": "canary-tool"}}}]},
        {"messages": user("canary-text " * 1000)},
    ]  # fmt: skip
    for body in bodies:
        client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer canary-header"})
    client.post("/v1/chat/completions", content=b"canary-text")
    client.post(
        "/v1/messages", json={"messages": user("canary-text"), "max_tokens": 1, "user": "canary-name"}
    )
    with httpx2.Client() as other, pytest.raises(httpx2.HTTPError):
        other.get(str(client.base_url), headers={"bad header": "canary-header"})


def test_nothing_of_a_request_is_logged(model, tmp_path):
    server = Started(model, "--ctx", "1K", "--session-dir", tmp_path)
    with server.client() as client:
        poke(client)
        with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
            raw.sendall(b"canary-text is no HTTP\r\n\r\n")
            assert b"400" in raw.recv(1000)
    assert server.stop() == 0
    for secret in SECRETS:
        assert secret not in server.log
    assert "Invalid HTTP request" in server.log  # that something was said at all


def test_an_error_of_ours_is_logged_without_its_words(client, live, monkeypatch, caplog):
    def fail(messages, *_):
        raise RuntimeError(messages[0]["content"])

    monkeypatch.setattr(live.llm, "chat_tokens", fail)
    with caplog.at_level(logging.INFO):
        response = client.post("/v1/chat/completions", json=ASK | {"messages": user("canary-text")})
    assert response.status_code == 500 and "canary" not in response.text
    assert "RuntimeError" in caplog.text and "canary" not in caplog.text
    assert "mindnano" in caplog.text  # where it happened


def test_a_stream_that_fails_ends_with_an_error(client, live, monkeypatch):
    def fail(*_):
        raise RuntimeError("x")

    monkeypatch.setattr("mindnano.server.reading.ChoiceReader.push", fail)
    with client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as response:
        last = [line for line in response.iter_lines() if line.startswith("data: ")][-1]
    assert json.loads(last[6:])["error"]["code"] == "internal_error"
    assert live.idle()
