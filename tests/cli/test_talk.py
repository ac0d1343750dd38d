"""The terminal chat: Markdown while it comes, progress, Ctrl-C, history, and a server as the partner."""

import io
import re
import stat
from itertools import pairwise

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from mindnano.checkpoint import tiny
from mindnano.cli.output import duration
from mindnano.cli.talk import markdown
from tests.cli.program import NOTE, Terminal, run
from tests.serving import Served

TEXT = """# Title

A paragraph of *some* words that is long enough to be broken over two lines of a narrow terminal.

- one
- two <b>bold</b>
  - three

1. first
2. second

| a | b |
|--:|---|
| 1 | x |

```python
def f(x):

    return x
```

> quoted

Last, with `code` and [a link](https://example.org) and <script>alert(1)</script>.
"""
WIDTH = 60


def screen_of(output, height=100):
    """What a terminal shows after `output`: its lines without what is blank at the ends."""
    screen = pyte.Screen(WIDTH, height)
    screen.set_mode(pyte.modes.LNM)
    pyte.Stream(screen).feed(output)
    return [line.rstrip() for line in screen.display]


def terminal(height=100):
    return Console(
        file=io.StringIO(), force_terminal=True, width=WIDTH, height=height, legacy_windows=False, _environ={}
    )


def streamed(pieces, height=100):
    console = terminal(height)
    stream = markdown.MarkdownStream(console)
    for piece in pieces:
        stream.push(piece)
    stream.finish()
    return console.file.getvalue()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(markdown, "REDRAW_SECONDS", 0.0)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, len(TEXT)), max_size=30).map(sorted))
def test_however_it_comes_the_same_is_shown(cuts):
    bounds = [0, *cuts, len(TEXT)]
    pieces = [TEXT[a:b] for a, b in pairwise(bounds)]
    assert screen_of(streamed(pieces)) == screen_of(streamed([TEXT]))


def test_it_looks_as_when_it_is_printed_whole():
    console = terminal()
    console.print(markdown.rendered(TEXT))
    whole = [line for line in screen_of(console.file.getvalue()) if line]
    assert [line for line in screen_of(streamed(TEXT)) if line] == whole
    for words in ("<b>bold</b>", "<script>alert(1)</script>", "https://example.org", "return x"):
        assert any(words in line for line in whole)


def test_a_block_taller_than_the_screen_is_whole_in_the_end():
    code = "\n".join(f"line {n}" for n in range(60))
    output = streamed(re.findall(r"[^\n]*\n", f"```\n{code}\n```\n"), height=12)
    history = pyte.HistoryScreen(WIDTH, 12, history=500)
    history.set_mode(pyte.modes.LNM)
    pyte.Stream(history).feed(output)
    above = ["".join(row[at].data for at in range(WIDTH)).strip() for row in history.history.top]
    shown = [line.strip() for line in [*above, *history.display]]
    for n in range(60):
        assert shown.count(f"line {n}") == 1


@pytest.mark.parametrize(
    "blocks",
    [
        [""],
        ["one"],
        ["one\n\n"],
        ["\none\u2028\n\n", "two"],
        ["- a\n- b\n\n  c"],
        ["```\na\n\nb"],
        ["# a\n", "b\n"],
    ],
)
def test_a_text_and_its_blocks(blocks):
    assert markdown.blocks("".join(blocks)) == blocks


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (125, "2 min 05 s"), (4330, "1 h 12 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def talk_at(home, *arguments):
    """`mindnano chat` on a terminal that can move its cursor."""
    return Terminal("chat", *arguments, TERM="xterm", HOME=str(home), XDG_STATE_HOME="", XDG_DATA_HOME="")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.mn"
    tiny.build(path)
    return path


def test_on_a_terminal(packed, tmp_path):
    talk = talk_at(tmp_path, packed, "--ctx", "16K", "--max-tokens", 8, "--ignore-eos")
    talk.wait_for(">>> ")
    talk.type("x " * 7000 + "\n")
    talk.wait_for(r"reading .*\d+/14\d{3}.* tokens")
    talk.wait_for(r"\d+ s left")
    talk.type("\x03")
    talk.wait_for("stopped")
    talk.wait_for(">>> ")
    talk.type("/clear\n")
    talk.wait_for(">>> ")
    talk.type("\x1b[200~two\nlines\x1b[201~ and\x1b\rthree\n")
    talk.wait_for("cut at --max-tokens")
    talk.type("/stats\n")
    prompt = int(talk.wait_for(r"prompt (\d+) tokens")[1])
    talk.type("/again\n")
    talk.wait_for("cut at --max-tokens")
    talk.type("/stats\n")
    assert int(talk.wait_for(r"prompt (\d+) tokens")[1]) == prompt
    talk.type("/sa\tone\n")
    talk.wait_for("saved one: ")
    talk.type("/sessions\n")
    talk.wait_for(r"one: \d+ tokens, \d+\.\d MiB")
    talk.type("/de\to\t\n")
    talk.wait_for("deleted one")
    talk.type("/sessions\n")
    talk.wait_for("no conversation is kept yet")
    talk.type("/quit\n")
    assert talk.end() == 0
    history = tmp_path / ".local/state/mindnano/history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "/sessions" in history.read_text()


def test_thoughts_are_no_part_of_piped_answers(packed, tmp_path):
    done = run(
        "chat", packed, "--ctx", "2K", "--think", "--max-tokens", 30, "--ignore-eos", "--session-dir", tmp_path,
        text="why\n/stats\n",
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.decode().strip() == ""  # the random model doesn't end its reasoning
    errors = done.stderr.decode().replace(NOTE, "")
    assert "answer 30 tokens" in errors
    assert len(errors.split("for tests only")[-1]) > 30


@pytest.fixture(scope="module")
def server(packed, tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("log") / "log", packed, "--ctx", "16K", "--slots", 2).start()
    yield served
    served.stop()


def test_a_server_as_the_partner(server, tmp_path):
    done = run(
        "chat", "--url", server.url, "--max-tokens", 6, "--ignore-eos", "--temperature", 0,
        text=f"hello\n/stats\nagain\n/stats\n{'x' * 17000}\n/think on\nwhy\n/stats\n",
    )  # fmt: skip
    errors = done.stderr.decode()
    assert done.returncode == 0, errors
    assert f"tiny at {server.url}" in errors
    assert errors.count("answer 6 tokens") == 3
    assert re.search(r"prompt \d+ tokens \(\d{2,} cached\)", errors)
    assert "17" in errors and "exceed the context of 16384" in errors
    assert "Traceback" not in errors


def test_ctrl_c_stops_the_servers_answer(server, tmp_path):
    talk = talk_at(tmp_path, "--url", server.url, "--max-tokens", 8, "--ignore-eos")
    talk.wait_for(">>> ")
    talk.type("x " * 7000 + "\n")
    talk.wait_for(r"reading .*\d+/14\d{3}.* tokens")
    talk.type("\x03")
    talk.wait_for("stopped")
    talk.wait_for(">>> ")
    talk.type("/clear\n")
    talk.type("short\n")
    talk.wait_for("cut at --max-tokens", timeout=20)
    talk.wait_for(">>> ")  # before it, the terminal itself takes a Ctrl-D, and it is lost
    talk.type("\x04")
    assert talk.end() == 0


def test_a_server_that_goes(packed, tmp_path):
    served = Served(tmp_path / "log", packed, "--ctx", "8K").start()
    talk = talk_at(tmp_path, "--url", served.url, "--max-tokens", 5000, "--ignore-eos", "--plain")
    talk.wait_for(">>> ")
    talk.type("hello\n")
    talk.wait_for(r"hello\r\n.{20}")
    served.kill()
    talk.wait_for("the connection was lost|Connection reset|IncompleteRead")
    talk.wait_for(">>> ")
    talk.type("hello\n")
    talk.wait_for("Connection refused; is a server running there")
    talk.type("/quit\n")
    assert talk.end() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "ftp://here"], "expected an address"),
        (["--url", "http://127.0.0.1:99999"], "expected an address"),
        (["--url", "http://127.0.0.1:9", "--ctx", "4K"], "leave out MODEL"),
        (["model", "--url", "http://127.0.0.1:9"], "leave out MODEL"),
        (["--url", "http://127.0.0.1:9"], "is a server running there"),
        (["--logprobs", "3"], "--logprobs"),
    ],
)
def test_a_users_error_is_one_line(arguments, words):
    done = run("chat", *arguments)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert len(lines) == 1
    assert words in lines[0]


def test_a_long_prompt_of_generate_shows_its_progress(packed, tmp_path):
    (tmp_path / "prompt").write_text("x " * 7000)
    talk = Terminal("generate", packed, "--prompt-file", tmp_path / "prompt", "--ctx", "16K", TERM="xterm")
    talk.wait_for(r"reading .*\d+/14000.* tokens .*\d+ s left")
    talk.type("\x03")
    assert talk.end() == 130
    assert "Traceback" not in talk.seen
