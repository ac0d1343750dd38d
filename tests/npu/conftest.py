import pytest

from tests.npu.emulation import Emulator, build


@pytest.fixture(scope="session")
def _loaded():
    return Emulator(build())


@pytest.fixture
def emulator(_loaded, monkeypatch, tmp_path):
    """The emulation as this machine's library. Unless the test says otherwise, no rule may be broken and all must be
    given back."""
    monkeypatch.setenv("MINDNANO_RKNNRT", _loaded.path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _loaded.reset()
    yield _loaded
    broken, expected = _loaded.violations(), _loaded.expected
    left = {what: _loaded.count(what) for what in ("contexts", "allocations", "slices")}
    _loaded.reset()
    if not expected:
        assert broken[0] == 0, broken[1]
        assert not any(left.values()), left
