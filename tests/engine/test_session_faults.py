"""Session files under every fault: the old file survives, the live session is untouched, the message says why."""

import dataclasses
import errno
import os
import shutil
import subprocess
import sys

import pytest

from mindnano import LLM, SamplingParams
from mindnano.cache import atomic, snapshot
from mindnano.cache.sessions import SessionStore
from mindnano.checkpoint import synthetic, tiny
from mindnano.errors import MindNanoError, SessionMismatchError, SessionStorageError

from .faults import failing, in_child, interrupted, kill

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
TALK = [{"role": "user", "content": "Where is the key?"}]
LIVE = [{"role": "user", "content": "What else runs in this engine meanwhile?"}]


def small():
    """Small enough that a session file has about 10 KB: every byte of it can be tried."""
    whole = tiny.config(4)
    return dataclasses.replace(
        whole,
        hidden_size=64,
        layer_types=("kda", "mla", "kda", "mla"),
        kda=dataclasses.replace(whole.kda, num_heads=1, head_dim=16),
        mla=dataclasses.replace(
            whole.mla, num_heads=1, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
            q_lora_rank=16,
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    target = tmp_path_factory.mktemp("model") / "model.mn"
    synthetic.synth(small(), target, "mixed", 5)
    return target


def open_llm(path, **options):
    return LLM(path, **({"context": 512, "kv": "int8", "threads": 1, "cache_budget": 4 << 20} | options))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A folder with session "diary"."""
    where = tmp_path_factory.mktemp("sessions")
    with open_llm(model) as llm:
        llm.chat(TALK, GREEDY)
        llm.save_session(where, "diary", TALK)
    return where


@pytest.fixture
def store(folder, tmp_path):
    """A copy of it of one's own."""
    shutil.copytree(folder, tmp_path / "s")
    return SessionStore(tmp_path / "s")


@pytest.fixture(scope="module")
def live(model):
    """An engine with a conversation in its cache, and what there is of it."""
    with open_llm(model) as llm:
        llm.chat(LIVE, GREEDY)
        yield llm


def kept(llm):
    """All that the cache holds, as bytes."""
    llm._prefixes.check_integrity()
    return [
        (node.begin, node.tokens.tobytes(), node.states and id(node.states),
         *(array.tobytes() for array in node.rows.arrays.values()),
         *(array.tobytes() for array in (node.states.arrays.values() if node.states else ())))
        for node in llm._prefixes.nodes()
    ]  # fmt: skip


@pytest.fixture
def untouched(live):
    """The live conversation is the same afterwards, and is answered from the cache as before."""
    before, answer = kept(live), live.chat(LIVE, GREEDY)
    assert answer.timings.cached_tokens == answer.usage.prompt_tokens
    yield
    after = live.chat(LIVE, GREEDY)
    assert kept(live) == before
    assert (after.token_ids, after.timings.cached_tokens) == (answer.token_ids, answer.timings.cached_tokens)


def path_of(store, name="diary"):
    return store._path(name)


def refused(llm, store, error=MindNanoError):
    """The message with which loading "diary" is refused."""
    with pytest.raises(error) as caught:
        llm.load_session(store, "diary")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def count_steps(llm, store):
    with interrupted(-1, kill) as seen:
        llm.save_session(store, "diary", TALK)
    return seen


def whole(store, llm):
    """The session as it is in the file, wholly verified."""
    saved, pieces = store.load("diary", llm._pool, llm._binding())
    with pieces:
        assert pieces.shapes[-1].logits
    return saved


def test_killed_at_every_step(model, store):
    """SIGKILL instead of each system call, writes half done: the old file or the new one, whole, and nothing left."""
    with open_llm(model) as llm:
        llm.chat(TALK, GREEDY)
        steps = count_steps(llm, store)
        assert {"open", "write", "fsync", "replace"} <= set(steps)
        old, new = path_of(store).read_bytes(), 0
        for at in range(len(steps)):

            def save(at=at):
                with interrupted(at, kill):
                    llm.save_session(store, "diary", TALK, {"step": at})

            assert in_child(save) == [-9]
            assert [info.name for info in store.list()] == ["diary"]
            atomic.sweep(store.folder)  # what the next save does
            assert list(store.folder.iterdir()) == [path_of(store)]
            if path_of(store).read_bytes() != old:  # after the rename
                assert whole(store, llm).settings == {"step": at}
                new += 1
                old = path_of(store).read_bytes()
        assert new == len(steps) - 1 - steps.index("replace") > 0  # all that comes after the rename
        assert llm.save_session(store, "diary", TALK).tokens > 0
        assert list(store.folder.iterdir()) == [path_of(store)]
        assert llm.chat(TALK, GREEDY).timings.cached_tokens > 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_every_call_fails_once(model, store, number):
    """Also in the middle of a write. The message has the system's reason, and only says "saved" where it is."""
    with open_llm(model) as llm:
        answer = llm.chat(TALK, GREEDY)
        steps, before, told = count_steps(llm, store), kept(llm), 0
        old = path_of(store).read_bytes()
        for at in range(steps.index("open"), len(steps)):  # before: mkdir, of a folder that is there
            with interrupted(at, failing(number)), pytest.raises(SessionStorageError) as caught:
                llm.save_session(store, "diary", TALK, {"step": at})
            message = str(caught.value)
            assert os.strerror(number) in message and "diary" in message
            assert list(store.folder.iterdir()) == [path_of(store)]
            if "is saved" in message:
                assert whole(store, llm).settings == {"step": at}
                told += 1
            else:
                assert "an older one is untouched" in message
                assert path_of(store).read_bytes() == old
        assert told > 0
        assert kept(llm) == before
        assert not llm._prefixes._pinned
        assert llm.chat(TALK, GREEDY).token_ids == answer.token_ids


IN_A_NAMESPACE = """
import shutil, subprocess, sys
from pathlib import Path
from mindnano import LLM, SamplingParams
from mindnano.errors import MindNanoError
model, source, place = map(Path, sys.argv[1:])
options = {"context": 512, "kv": "int8", "threads": 1, "cache_budget": 4 << 20}
talk = [{"role": "user", "content": "Where is the key?"}]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=True)
for file in source.iterdir():
    shutil.copy(file, place)
(old,) = place.iterdir()
before = old.read_bytes()
(place / "filler").write_bytes(bytes((64 << 10) - (-(-len(before) // 4096) + 1) * 4096))
with LLM(model, **options) as llm:
    answer = llm.chat(talk, SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))
    for reason in ("full", "read-only"):
        if reason == "read-only":
            (place / "filler").unlink()
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        try:
            llm.save_session(place, "diary", talk)
        except MindNanoError as error:
            print(error)
        assert old.read_bytes() == before
        assert {path.name for path in place.iterdir()} <= {old.name, "filler"}
    assert llm.load_session(place, "diary").reusable > 0
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode,
    reason="needs a mount namespace of its own",
)  # fmt: skip
def test_a_full_and_a_read_only_file_system(model, folder, tmp_path):
    """Real ones. Loading from a read-only one works."""
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", IN_A_NAMESPACE, str(model), str(folder), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    full, read_only = done.stdout.splitlines()
    assert os.strerror(errno.ENOSPC) in full and "an older one is untouched" in full
    assert os.strerror(errno.EROFS) in read_only and "an older one is untouched" in read_only


def test_a_folder_that_cant_be_one(model, tmp_path, untouched, live):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SessionStorageError, match="could not be saved"):
        live.save_session(tmp_path / "file" / "sessions", "diary", LIVE)
    assert (tmp_path / "file").read_text() == "x"


def test_truncated_at_every_section(live, store, untouched):
    """At its beginning, one byte on, in its middle, and one byte short."""
    path = path_of(store)
    data = path.read_bytes()
    with snapshot.SessionFile(path, "x") as file:
        start = file._start
        cuts = {0, 1, 6, 8, 16, 47, 48, 49, start - 1, start}
        for section in file.header.sections:
            begin, end = start + section.offset, start + section.offset + section.nbytes
            cuts |= {begin, begin + 1, (begin + end) // 2, end - 1, end}
    for cut in sorted(cuts - {len(data)}):
        path.write_bytes(data[:cut])
        message = refused(live, store)
        assert "cut short" in message, (cut, message)
    path.write_bytes(data + b"\0")
    assert "damaged" in refused(live, store)


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_one_bit_flipped_anywhere(live, store, untouched, stride):
    """In every byte (every 13th in the quick run) and in both ends of every section and gap; the message says damaged,
    or what the flipped bit looks like."""
    path, size = path_of(store), path_of(store).stat().st_size
    with snapshot.SessionFile(path, "x") as file:
        ends = {0, file._start, *(file._start + s.offset for s in file.header.sections)}
        ends |= {file._start + s.offset + s.nbytes for s in file.header.sections}
    places = {*range(0, size, stride), *range(64), *ends, *(end - 1 for end in ends)}
    told = set()
    fd = os.open(path, os.O_RDWR)
    try:
        for at in sorted(places & set(range(size))):
            (byte,) = os.pread(fd, 1, at)
            os.pwrite(fd, bytes([byte ^ 1 << at % 8]), at)
            with pytest.raises(MindNanoError) as caught:
                live.load_session(store, "diary")
            told.add(str(caught.value).split(": ", 1)[1])
            os.pwrite(fd, bytes([byte]), at)
    finally:
        os.close(fd)
    assert all("damaged" in text or "cut short" in text or "file version" in text for text in told), told
    whole(store, live)


def test_a_symlink(model, store, tmp_path):
    """Is not followed when loading and replaced, not written through, when saving."""
    path, elsewhere = path_of(store), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    data = elsewhere.read_bytes()
    with open_llm(model) as llm:
        assert "symbolic link" in refused(llm, store)
        assert llm.cache_bytes == 0
        (entry,) = store.list()
        assert "symbolic link" in entry.problem
        llm.chat(TALK, GREEDY)
        llm.save_session(store, "diary", TALK)
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == data


def test_a_link_to_a_device_or_a_pipe(live, store, untouched):
    path = path_of(store)
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in refused(live, store)  # and nobody waits for a writer
    path.unlink()
    path.mkdir()
    assert "no regular file" in refused(live, store)


@pytest.mark.parametrize("name", ["../diary", "..", "a/../../diary", "/etc/passwd", "diary/", "..\\diary"])
def test_a_name_that_would_leave_the_folder(live, store, untouched, name):
    around = sorted(store.folder.parent.rglob("*"))
    for call in (
        lambda: live.save_session(store, name, LIVE),
        lambda: live.load_session(store, name),
        lambda: store.rename("diary", name),
        lambda: store.rename(name, "diary"),
        lambda: store.delete(name),
        lambda: store.read(name),
    ):
        with pytest.raises(MindNanoError, match="session name"):
            call()
    assert sorted(store.folder.parent.rglob("*")) == around


def test_another_models_file(store, tmp_path):
    """Of the same shape, so that nothing but the binding can tell."""
    synthetic.synth(small(), tmp_path / "other.mn", "mixed", 6)
    before = path_of(store).read_bytes()
    with open_llm(tmp_path / "other.mn") as llm:
        answer = llm.chat(LIVE, GREEDY)
        held = kept(llm)
        message = refused(llm, store, SessionMismatchError)
        assert "model.mn" in message and "other.mn" in message
        assert kept(llm) == held
        assert llm.chat(LIVE, GREEDY).token_ids == answer.token_ids
    assert path_of(store).read_bytes() == before


@pytest.mark.parametrize("key", ["tokenizer", "template", "kv_layout", "kv_format"])
def test_every_part_of_the_binding_counts(live, store, untouched, key, monkeypatch):
    real = live._binding()
    other = type(real)(**{name: getattr(real, name) for name in real.__struct_fields__} | {key: "other"})
    monkeypatch.setattr(live, "_binding", lambda: other)
    assert f"saved with {key}" in refused(live, store, SessionMismatchError)
    monkeypatch.undo()


def test_an_unknown_version(live, store, untouched):
    data = bytearray(path_of(store).read_bytes())
    data[6:8] = b"99"
    path_of(store).write_bytes(data)
    message = refused(live, store)
    assert "'99'" in message and "'02'" in message


def test_two_processes_save_the_same_name(model, store):
    """Whoever reads meanwhile finds one or the other, whole; at the end nothing else is left in the folder."""
    with open_llm(model) as llm:
        llm.chat(TALK, GREEDY)

        def save(number):
            for turn in range(12):
                llm.save_session(store, "diary", TALK, {"writer": number, "turn": turn})

        assert in_child(lambda: save(1), lambda: save(2), beside=lambda: whole(store, llm)) == [0, 0]
        assert whole(store, llm).settings["turn"] == 11
        assert list(store.folder.iterdir()) == [path_of(store)]


def test_a_file_that_shrinks_while_it_is_read(live, store, untouched, monkeypatch):
    """Verified, then cut before its rows are read: what was set aside is given back."""
    from mindnano.cache.saved import SavedPieces

    real = SavedPieces.read

    def shrink(self, count, inner):
        os.truncate(path_of(store), self.file.nbytes - 64)
        return real(self, count, inner)

    monkeypatch.setattr(SavedPieces, "read", shrink)
    assert "cut short" in refused(live, store)
    assert not live._prefixes._rooms


def test_a_context_too_small(model, store):
    with open_llm(model, context=16) as llm:
        assert "raise --ctx" in refused(llm, store)
        assert llm.cache_bytes == 0


def test_the_folder_is_private(store):
    assert path_of(store).stat().st_mode & 0o077 == 0
