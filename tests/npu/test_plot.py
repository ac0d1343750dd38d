"""`mindnano calibrate --plot`: a picture of the curves that were kept."""

import re
import struct

import pytest
from msgspec.structs import replace

from mindnano.cli import main
from mindnano.cli.calibrate import draw
from mindnano.device import curves
from mindnano.device.calibrate import LING_TINY
from mindnano.errors import MindNanoError
from tests.npu.attending import SMALL
from tests.npu.curving import calibration

pytest.importorskip("matplotlib")


def texts(svg):
    """matplotlib writes each text as a comment beside its glyphs."""
    return re.findall(r"<!-- (.*?) -->", svg.read_text())


def test_every_curve_is_drawn_and_named(emulator, tmp_path):
    kept = calibration(SMALL, attention=1e-3, linear=1e-3)
    draw(kept, str(tmp_path / "curves.svg"))
    said = texts(tmp_path / "curves.svg")
    for work, devices in kept.curves.items():
        assert work in said
        for name, curve in devices.items():
            label = "rknpu (emulated)" if name == "rknpu" else name
            for rows in curve.axes[0]:
                assert said.count(f"{label}, {rows} rows") == len(kept.curves)
    assert said.count("ms") == len(kept.curves) and "weights" in said and "keys a row sees" in said


def test_a_real_npu_and_a_lone_cpu(emulator, tmp_path):
    kept = calibration(SMALL, linear=1e-3)
    draw(replace(kept, emulated=False), str(tmp_path / "a.svg"))
    assert any(text.startswith("rknpu, ") for text in texts(tmp_path / "a.svg"))
    assert not any("emulated" in text for text in texts(tmp_path / "a.svg"))
    alone = {work: {"cpu": devices["cpu"]} for work, devices in kept.curves.items()}
    draw(replace(kept, curves=alone), str(tmp_path / "b.svg"))
    assert any(text.startswith("cpu, ") for text in texts(tmp_path / "b.svg"))
    assert not any("rknpu" in text for text in texts(tmp_path / "b.svg"))


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_what_was_kept_is_drawn_by_the_command(emulator, tmp_path, capsys, ending, begins):
    curves.save(calibration(LING_TINY, attention=1e-3, linear=1e-3))
    picture = tmp_path / f"curves.{ending}"
    assert main(["calibrate", "--show", "--plot", str(picture)]) == 0
    capsys.readouterr()
    data = picture.read_bytes()
    assert data.startswith(begins)
    if ending == "png":
        width, height = struct.unpack(">II", data[16:24])
        assert width > 2 * height > 400, "a panel for each of three kinds of work"


def test_where_it_cannot_be_written(emulator, tmp_path, capsys):
    with pytest.raises(MindNanoError, match=r"--plot .*curves.svg: No such file"):
        draw(calibration(SMALL), str(tmp_path / "nowhere" / "curves.svg"))
    curves.save(calibration(SMALL))
    assert main(["calibrate", "--show", "--plot", str(tmp_path / "nowhere" / "curves.svg")]) == 2
    assert "No such file" in capsys.readouterr().err
