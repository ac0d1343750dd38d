"""Mixed sessions for a long time: memory stays flat, nothing is left over, the budget holds after each action."""

import json
import os
import subprocess
import sys

import pytest

SECONDS = int(os.environ.get("MINDNANO_SOAK_SECONDS", "3600"))
FLAT = 0.02  # of the RSS, after warm-up


def soak(folder, seconds):
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.soak", str(seconds), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        timeout=seconds + 240,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["left"] == []
    return found


def test_a_short_soak(tmp_path):
    found = soak(tmp_path, 6)
    assert found["lives"] >= 4
    assert found["counts"]["tokens reused"] > 0


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_a_long_soak(tmp_path):
    found = soak(tmp_path, SECONDS)
    print(json.dumps(found, indent=1))
    before, after = found["fds"]
    assert after <= before
    peaks = found["rss_peaks"]
    assert max(peaks) - min(peaks) <= FLAT * min(peaks), peaks
