"""Session files: what comes back is exact, what is damaged is refused, and an older file outlives a failed save."""

import os

import numpy as np
import pytest

from mindnano import LLM, SamplingParams
from mindnano.cache import snapshot
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


def test_every_damage_is_refused_and_nothing_live_touched(path, saved, tmp_path):
    folder, _ = saved
    whole = next(folder.iterdir()).read_bytes()
    target = tmp_path / next(folder.iterdir()).name
    random = np.random.default_rng(4)
    header = 48 + int.from_bytes(whole[8:16], "little")
    with open_llm(path) as llm:
        cuts = [0, 1, 7, 20, 47, header // 2, header, len(whole) // 2, len(whole) - 4096]
        for cut in cuts:
            target.write_bytes(whole[:cut])
            with pytest.raises(MindNanoError):
                llm.load_session(tmp_path, "diary")
        with snapshot.SessionFile(next(folder.iterdir()), "x") as file:
            sections, start = file.header.sections, file._start
        used = [(start + s.offset, start + s.offset + s.nbytes) for s in sections]
        places = [*range(0, 48), *random.integers(48, header, 60)]
        places += [int(random.integers(begin, end)) for begin, end in used]
        for at in places:
            bad = bytearray(whole)
            bad[at] ^= 1 << int(random.integers(8))
            target.write_bytes(bad)
            with pytest.raises(MindNanoError):
                llm.load_session(tmp_path, "diary")
        assert llm._prefixes.nbytes == 0


@pytest.mark.parametrize("options", [{"kv": "bf16"}, {"kv_layout": "expanded"}])
def test_another_format_is_refused_with_the_reason(path, saved, options):
    with open_llm(path, **options) as llm, pytest.raises(MindNanoError, match="saved with kv_"):
        llm.load_session(saved[0], "diary")


def test_another_model_is_refused(saved, tmp_path):
    tiny.build(tmp_path / "other.mn", seed=10)
    with open_llm(tmp_path / "other.mn") as llm, pytest.raises(MindNanoError, match="saved with model"):
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


def test_a_failed_save_leaves_the_old_file(path, saved, tmp_path, monkeypatch):
    target = tmp_path / next(saved[0].iterdir()).name
    target.write_bytes(next(saved[0].iterdir()).read_bytes())
    before = target.read_bytes()

    def full(fd):
        raise OSError(28, "No space left on device")

    with open_llm(path) as llm:
        llm.chat(TALK, GREEDY)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(MindNanoError, match="No space left"):
            llm.save_session(tmp_path, "diary", TALK)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_computed_is_said(path, tmp_path):
    with open_llm(path) as llm, pytest.raises(MindNanoError, match="nothing of this conversation"):
        llm.save_session(tmp_path, "diary", TALK)
