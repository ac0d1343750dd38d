"""Session files: what comes back is exact, and what can't be used is refused. Faults: test_session_faults.py."""

import pytest

from mindnano import LLM, SamplingParams
from mindnano.cache.sessions import SessionStore
from mindnano.checkpoint import tiny
from mindnano.errors import MindNanoError

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
TALK = [
    {"role": "system", "content": "You keep a diary."},
    {
        "role": "user",
        "content": "The lighthouse keeper lost the key to the lamp room on Tuesday. Where is it?",
    },
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target, seed=9)
    return target


def open_llm(path, **options):
    return LLM(path, **({"context": 1024, "kv": "int8"} | options))


@pytest.fixture(scope="module")
def saved(path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    with open_llm(path) as llm:
        answer = llm.chat(TALK, GREEDY)
        info = llm.save_session(folder, "diary", TALK)
        assert info.tokens == answer.usage.prompt_tokens
    return folder, answer


def test_after_a_restart_the_prompt_is_not_computed_again(path, saved):
    folder, answer = saved
    with open_llm(path) as llm:
        session = llm.load_session(folder, "diary")
        again = llm.chat(session.messages, GREEDY)
        assert session.messages == TALK
        assert session.reusable == again.timings.cached_tokens == answer.usage.prompt_tokens
        assert again.token_ids == answer.token_ids
        llm._prefixes.check_integrity()


def test_listing_and_deleting(saved, tmp_path):
    folder, _ = saved
    assert [info.name for info in SessionStore(folder).list()] == ["diary"]
    copy = tmp_path / next(folder.iterdir()).name
    copy.write_bytes(next(folder.iterdir()).read_bytes())
    SessionStore(tmp_path).delete("diary")
    assert SessionStore(tmp_path).list() == []
    with pytest.raises(MindNanoError, match="there is none"):
        SessionStore(tmp_path).delete("diary")


@pytest.mark.parametrize("options", [{"kv": "bf16"}, {"kv_layout": "expanded"}])
def test_another_format_is_refused_with_the_reason(path, saved, options):
    with open_llm(path, **options) as llm, pytest.raises(MindNanoError, match="saved with kv_"):
        llm.load_session(saved[0], "diary")


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a\\b", "x\0y", "n" * 101, "line\nline"])
def test_names_never_become_paths(path, saved, name):
    with open_llm(path) as llm:
        for call in (
            lambda: llm.load_session(saved[0], name),
            lambda: llm.save_session(saved[0], name, TALK),
        ):
            with pytest.raises(MindNanoError, match="session name"):
                call()


def test_nothing_computed_is_said(path, tmp_path):
    with open_llm(path) as llm, pytest.raises(MindNanoError, match="nothing of this conversation"):
        llm.save_session(tmp_path, "diary", TALK)
