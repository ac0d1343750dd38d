"""The memory plan, the benchmark's curves, and what the rule says of a draft, against what the server says."""

import json
import urllib.request

import pytest
from playwright.sync_api import expect

from mindnano.bench.records import Point, Results
from tests.page.test_chat import ask, finished
from tests.serving import Served


def test_the_memory_plan_is_the_servers(visit, server):
    page = visit(server, path="/#memory")
    report = json.loads(server.get("/props")[1])["memory"]["report"]
    expect(page.locator("#view-memory")).to_be_visible()
    expect(page.locator("#title")).to_have_text("Memory")
    kinds = {(row["kv_layout"], row["kv_format"]) for row in report["rows"]}
    contexts = {row["context"] for row in report["rows"]}
    assert page.locator(".figures thead th").count() == len(kinds) + 1
    assert page.locator(".figures tbody tr").count() == len(contexts) == page.locator(".bar-row").count()
    names = {
        "fits": "fits",
        "tight": "tight",
        "does not fit": "doesn’t fit",
        "beyond trained context": "beyond training",
    }
    for at, context in enumerate(sorted(contexts)):
        row = page.locator(".figures tbody tr").nth(at).inner_text()
        for one in (one for one in report["rows"] if one["context"] == context):
            size = one["total"] / 2**30
            assert (f"{size:.1f} GiB" if size >= 1 else f"{one['total'] / 2**20:,.0f} MiB") in row
            assert names[one["verdict"]] in row
    expect(page.locator(".figures .tag")).to_have_text("running")
    page.get_by_role("radio", name="expanded bf16").check(force=True)
    widths = page.locator(".bar-line").evaluate_all(
        """lines => lines.map(line =>
          [...line.children].reduce((all, one) => all + one.getBoundingClientRect().width, 0))"""
    )
    totals = [
        one["total"] for one in report["rows"] if (one["kv_layout"], one["kv_format"]) == ("expanded", "bf16")
    ]
    assert [width / widths[0] for width in widths] == pytest.approx(
        [total / totals[0] for total in totals], rel=0.05
    )


@pytest.fixture(scope="module")
def measured(model, tmp_path_factory):
    """A server that was given results."""
    folder = tmp_path_factory.mktemp("results")
    with Results(folder) as results:
        for layout, slope in (("latent", 1.0), ("expanded", 2.0)):
            for tokens in (128, 1024, 8192):
                for repeat in range(2):
                    results.append(
                        Point(
                            phase="perf", setting=f"{layout} {tokens}", server="mindnano", kv_layout=layout,
                            kv_format="int8", input_tokens=tokens, output_tokens=64, concurrency=1, prompts="words",
                            repeat=repeat, ttft_s=slope * tokens / 100, decode_tok_s=20 / slope, synthetic=True,
                        )
                    )  # fmt: skip
    served = Served(folder / "log", model, "--ctx", "4K", "--bench-results", folder).start()
    yield served
    served.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_curves_of_the_last_benchmark(visit, measured, scheme):
    page = visit(measured, path="/#speed", color_scheme=scheme)
    expect(page.locator(".uplot")).to_have_count(2)
    rows = page.locator(".figures tbody tr")
    expect(rows).to_have_count(6)
    assert rows.nth(2).inner_text().split("\t") == ["8,192", "latent int8", "82 s", "20.0", "64", "2"]
    assert rows.nth(5).inner_text().split("\t") == ["8,192", "expanded int8", "2 min 44 s", "10.0", "64", "2"]
    expect(page.locator(".note")).to_contain_text("random weights")
    legend = page.locator(".u-legend").first
    expect(legend).to_contain_text("latent int8")
    drawn = page.locator(".uplot canvas").first.evaluate(
        """canvas => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const colours = new Set();
          for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] === 255) colours.add(`${data[at]},${data[at + 1]},${data[at + 2]}`);
          }
          return [...colours];
        }"""
    )
    curves = ("12,106,87", "185,122,23") if scheme == "light" else ("116,211,184", "224,177,90")
    assert set(curves) <= set(drawn)


def test_no_results_is_said_with_what_to_do(visit, server):
    page = visit(server, path="/#speed")
    expect(page.locator("#view-speed")).to_contain_text("--bench-results FILE")
    page.go_back() if page.evaluate("history.length > 2") else page.click("[data-view=chat]")


def test_a_drafts_tokens_are_the_prompts(visit, server):
    page = visit(server)
    page.fill("#draft", "How long is this?")
    expect(page.locator("#estimate")).to_contain_text("tokens")
    shown = int(page.locator("#estimate").inner_text().split()[0].replace(",", ""))
    ask(page, "How long is this?")
    finished(page)
    body = json.dumps({"messages": [{"role": "user", "content": "How long is this?"}]}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(server.url + "/tokenize", body, {"content-type": "application/json"}),
        timeout=30,
    ) as reply:
        assert shown == json.load(reply)["count"]
    expect(page.locator(".cost dd").nth(3)).to_have_text(str(shown))
    page.fill("#draft", "y" * 9000)
    expect(page.locator("#estimate")).to_contain_text("Doesn’t fit")
