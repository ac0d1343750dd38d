"""Schemathesis over the OpenAPI document: no 500, and nothing that the document doesn't say."""

from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks

from mindnano import LLM
from mindnano.server import openapi
from mindnano.server.routes import APIS

from .running import Live, user

load_all_checks()
SAID = [
    CHECKS.get_one(name)
    for name in ("not_a_server_error", "status_code_conformance", "content_type_conformance",
                 "response_schema_conformance", "negative_data_rejection", "unsupported_method")
]  # fmt: skip
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "derandomize": True}


class BriefLLM(LLM):
    """Ends each answer after a few tokens, whatever is asked for."""

    def request(self, prompt, params, **more):
        most = min(8, params.max_tokens or 8)
        return super().request(prompt, replace(params, max_tokens=most), **more)


@pytest.fixture(scope="module")
def fuzzed(model, tmp_path_factory):
    """Answers are short: many prompts times many choices without a limit are allowed, and to the end of the context
    each they would keep the engine busy for minutes."""
    with BriefLLM(model, context=128, slots=4, cache_budget=16 << 20) as llm:
        live = Live(llm, session_dir=tmp_path_factory.mktemp("sessions"), queue=64)
        yield live
        assert live.idle(30)
        with live.client() as client:
            body = {"messages": user("still there?"), "max_tokens": 2}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
        live.stop()


schema = schemathesis.openapi.from_dict(openapi.build(APIS))


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=8, **QUIET)
def test_the_document_is_kept(case, fuzzed):
    case.call_and_validate(base_url=fuzzed.url, checks=SAID, timeout=60)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=300, **QUIET)
def test_the_document_is_kept_longer(case, fuzzed):
    case.call_and_validate(base_url=fuzzed.url, checks=SAID, timeout=60)
