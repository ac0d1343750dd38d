"""/health, /props, /metrics and the OpenAPI document."""

import re

import msgspec

from mindnano.server.routes import APIS

from .make_docs import DOCS, markdown
from .running import user


def test_health(client):
    assert client.get("/health").json() == {"status": "ok"}


def test_props_say_what_runs(client, llm):
    got = client.get("/props").json()
    assert got["context"] == 2048 and got["slots"] == 4
    assert got["kv"] == {"layout": "latent", "format": "bf16"}
    reason = got["device"].pop("reason")
    assert got["device"] == {"requested": "auto", "effective": "cpu", "emulated": False}
    assert "librknnrt" in reason
    assert got["memory"]["plan"]["total"] == llm.plan.total and got["memory"]["available_mib"] > 0
    assert got["model"]["synthetic"] is True and got["tools"] is True
    assert got["limits"]["body_bytes"] == 16 << 20


def value(text, name, **labels):
    inside = ",".join(f'{key}="{one}"' for key, one in labels.items())
    found = re.search(rf"^{re.escape(name + (f'{{{inside}}}' if inside else ''))} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_metrics_count(client, live):
    before = client.get("/metrics").text
    client.post(
        "/v1/chat/completions", json={"messages": user("count me"), "max_tokens": 5, "ignore_eos": True}
    )
    client.post("/v1/chat/completions", json={"messages": []})
    live.idle()
    after = client.get("/metrics").text

    def grown(name, **labels):
        return value(after, name, **labels) - value(before, name, **labels)

    assert grown("mindnano_answer_tokens_total") == 5
    assert grown("mindnano_answers_total", reason="length") == 1
    assert grown("mindnano_requests_total", endpoint="/v1/chat/completions", status="200") == 1
    assert grown("mindnano_requests_total", endpoint="/v1/chat/completions", status="400") == 1
    assert grown("mindnano_ttft_seconds_count") == 1
    assert grown("mindnano_token_gap_seconds_count") == 4
    assert grown("mindnano_busy_seconds_total", kind="decode") > 0
    assert value(after, "mindnano_slots") == 4 and value(after, "mindnano_slots_busy") == 0


def test_the_document_has_what_is_served(client, live):
    document = client.get("/openapi.json").json()
    served = {(api.method.lower(), api.path) for api in APIS}
    assert {(method, path) for path, one in document["paths"].items() for method in one} == served
    text = msgspec.json.encode(document).decode()
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in document["components"]["schemas"]
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(set(ids)) == len(ids)


def test_the_docs_are_current():
    assert DOCS.read_text() == markdown(), "run python -m tests.server.make_docs"
