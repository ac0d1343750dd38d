"""The report: everything measured is in it, nothing that wasn't, readable by itself."""

import re
from html.parser import HTMLParser

import pytest

from mindnano.bench.records import Divergence, Point, Run, read_folder
from mindnano.bench.report import groups, plots, summary, tables, write
from mindnano.bench.report.table import number, percent, times, tokens
from mindnano.bench.statistics import paired_ratio
from mindnano.cli import main
from mindnano.errors import MindNanoError

VOID = {"meta", "br", "img", "link", "hr", "input", "path", "use", "rect"}


class Checker(HTMLParser):
    """Tags that are closed in order; addresses that a browser would load."""

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.headings = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        values = dict(attributes)
        for name in ("src", "href", "xlink:href"):
            value = values.get(name) or ""
            if value and not value.startswith("#"):
                self.loaded.append(value)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h2", "h3"):
            self.headings.append(data)


@pytest.fixture(scope="module")
def page(measured, tmp_path_factory):
    target = tmp_path_factory.mktemp("report")
    written = write(read_folder(measured), target)
    assert [path.name for path in written[:2]] == ["report.html", "report.md"]
    return target


def test_the_page_stands_alone(page):
    text = (page / "report.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.loaded == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert "<script" not in text
    for heading in ("Summary", "Speed", "Where the time goes", "Comparison", "Capacity", "Machine"):
        assert heading in checker.headings
    for table in (
        "Time to the first token",
        "Decode, tokens/s",
        "Capacity, latent",
        "Pairs: A is",
        "Growth with the input",
    ):
        assert any(table in heading for heading in checker.headings), table


def test_every_table_of_synthetic_figures_says_so(page):
    for text in ((page / "report.md").read_text(), (page / "report.html").read_text()):
        titles = re.findall(r"\*\*(.+?)\*\*|<h3>(.+?)</h3>", text)
        measured = [a or b for a, b in titles if "machine when" not in (a or b)]
        assert measured
        assert all("synthetic weights" in title for title in measured)
        assert "answers mean nothing" in text


def test_what_is_emulated_says_so_in_every_table():
    point = Point(phase="perf", setting="x", kv_layout="latent", kv_format="int8", input_tokens=128, output_tokens=8,
                  concurrency=1, prompts="text", ttft_s=1.0, decode_tok_s=5.0, emulated=True)  # fmt: skip
    made = [*tables.speed([point]), tables.requests([point])]
    assert all("emulated device" in table.heading for table in made)
    assert any("emulated" in line for line in summary.warnings([point]))


def test_pictures_follow_the_scheme_and_load_nothing(page):
    names = {path.stem for path in (page / "plots").glob("*.svg")}
    assert {"ttft", "decode", "memory", "stages", "shape"} <= names
    for path in (page / "plots").glob("*.svg"):
        text = path.read_text()
        assert "prefers-color-scheme: dark" in text
        assert "var(--ink" in text
        for stand_in, *_ in plots.COLOURS:
            assert stand_in not in text
        assert not re.search(r'(href|src)="(?!#)', text.replace("xlink:href", "href"))
        assert "<text" in text  # text stays text


def test_no_percentage_without_an_interval(page):
    """Cells with a percentage hold its interval, or it is the reference's column, which says that it is one run."""
    for line in (page / "report.md").read_text().splitlines():
        for cell in line.split("|"):
            if re.search(r"[-+]\d+\.\d %", cell):
                assert re.search(r"\[[-+]\d+\.\d, [-+]\d+\.\d\]", cell), cell


def test_the_same_results_make_the_same_report(measured, page, tmp_path):
    write(read_folder(measured), tmp_path)
    for path in sorted(page.rglob("*.*")):
        assert (tmp_path / path.relative_to(page)).read_bytes() == path.read_bytes(), path.name


def test_markup_in_results_stays_text(tmp_path):
    evil = "<script>alert(1)</script>"
    records = [
        Run(machine={"cpu": evil}),
        Point(
            phase="perf",
            setting=evil,
            model=evil,
            kv_layout="latent",
            kv_format=evil,
            input_tokens=128,
            output_tokens=8,
            concurrency=1,
            ttft_s=1.0,
            decode_tok_s=5.0,
            prompts=evil,
        ),
        Point(
            phase="capacity",
            setting=evil,
            status="not_started",
            reason=evil,
            context_tokens=8192,
            kv_layout="latent",
            kv_format=evil,
        ),
    ]
    write(records, tmp_path)
    assert "<script" not in (tmp_path / "report.html").read_text()


def test_nothing_measured_is_no_report(tmp_path):
    with pytest.raises(MindNanoError, match="no measured point"):
        write([Run()], tmp_path)


def test_the_command(measured, tmp_path, capsys):
    assert main(["bench", "report", str(measured), "--output", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
    assert main(["bench", "report", str(tmp_path / "none")]) == 2
    (tmp_path / "kernels.json").write_text("[]")
    (tmp_path / "results.jsonl").write_bytes((measured / "results.jsonl").read_bytes())
    assert main(["bench", "report", str(tmp_path)]) == 2
    assert "bench kernels --json" in capsys.readouterr().err


def speed(kind_tokens, ttft):
    return Point(
        phase="perf",
        setting="x",
        kv_layout="latent",
        kv_format="int8",
        input_tokens=kind_tokens,
        output_tokens=64,
        concurrency=1,
        prompts="text",
        ttft_s=ttft,
        decode_tok_s=5.0,
    )


def test_how_long_an_interactive_input_may_be():
    """Between 1K at 5 s and 4K at 20 s TTFT grows in proportion: 10 s at 2,048; 60 s lie beyond what was tried."""
    assert summary.reach({1024: 5.0, 4096: 20.0}, 10.0).startswith("up to about 2,0")
    assert "longest tried" in summary.reach({1024: 5.0, 4096: 20.0}, 60.0)
    assert summary.reach({1024: 15.0}, 10.0).startswith("for less than 1K")
    (said,) = summary.interactive([speed(1024, 5.0), speed(4096, 20.0)])
    assert "within 10 s up to about 2,0" in said
    assert "60 s" not in said


def capacity(context, rss, predicted, available):
    return Point(phase="capacity", setting=f"x {context}", kv_layout="latent", kv_format="int8", context_tokens=context,
                 rss_mib=rss, predicted_filled_rss_mib=predicted, mem_available_mib=available)  # fmt: skip


def test_the_largest_context_with_room():
    """800 MiB still to be touched of 1,500 available leave 700; of 1,200 they leave 400, less than the reserve."""
    records = [capacity(8192, 5000, 5800, 1500), capacity(16384, 5000, 5800, 1200)]
    assert tables.room(records[0]) == 700
    mapped = capacity(8192, 5000, 5800, 6000)
    mapped.rss_file_mib = 4700  # counted as available, but needed
    assert tables.room(mapped) == 500
    (said,) = summary.fits(records)
    assert "8K of context fit and leave 700 MiB when full (16K would leave 400 MiB)" in said
    (said,) = summary.fits(records[1:])
    assert "no measured context" in said


def test_disturbed_runs_are_replaced_by_good_ones_and_otherwise_said():
    good, bad = speed(1024, 5.0), speed(1024, 50.0)
    bad.disturbed = ["process make took 90% of a core"]
    (cell,) = groups.cells([good, bad])
    assert cell.mean("ttft_s").value == pytest.approx(5.0)
    assert (cell.disturbed, cell.dropped) == (0, 1)
    (cell,) = groups.cells([bad])
    assert cell.mean("ttft_s").value == pytest.approx(50.0)
    assert cell.disturbed == 1
    assert any("1 of these runs were" in note for table in tables.speed([bad]) for note in table.notes)


def test_divergence_is_drawn():
    records = [
        Divergence(
            kv_layout="latent",
            kv_format="int8",
            length=n,
            sample=s,
            kl=[1e-3 * (s + 1)] * 4,
            same_top=[1] * 4,
        )
        for n in (512, 1024)
        for s in range(5)
    ]
    assert "mean KL divergence" in plots.draw(records)["divergence"]


def test_numbers():
    assert [number(value) for value in (None, 0, 1234.5, 0.0123, 12.34, 1e-5)] == [
        "\u2013",
        "0",
        "1,234",
        "0.0123",
        "12.3",
        "1e-05",
    ]
    assert [tokens(value) for value in (128, 1024, 1000, 131072)] == ["128", "1K", "1000", "128K"]
    found = paired_ratio([1.0, 1.01, 0.99, 1.0, 1.02], [0.9, 0.91, 0.88, 0.9, 0.91])
    assert re.fullmatch(r"-\d\d\.\d % \[-\d\d\.\d, -\d\.\d\]", percent(found)) or "[" in percent(found)
    assert percent(paired_ratio([1.0], [2.0])) == "no interval (1 pair)"
    assert times(paired_ratio([1.0], [2.0])) == "2.00 (1 pair)"
