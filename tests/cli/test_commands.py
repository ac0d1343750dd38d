"""The program as its user runs it: output, JSON, exit status, errors of one line."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mindnano.checkpoint import builtin, tiny
from mindnano.cli import main
from mindnano.data import LING_TINY
from tests.cli.program import NOTE, RUN, Terminal, environment, last_json, run


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.mn"
    tiny.build(path)
    return path


@pytest.fixture(scope="module")
def config(packed):
    return Path(__file__).parents[1] / "data" / "ling-3.0-tiny.config.json"


def test_help_loads_no_engine():
    code = (
        "import sys; from mindnano.cli import main; main(['--help']); "
        "heavy = ('numpy', 'tokenizers', 'jinja2', 'msgspec', 'mindnano._native'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Usage: mindnano COMMAND" in done.stdout


def test_a_completion_is_streamed_and_its_speed_noted(packed):
    done = run(
        "generate", packed, "--prompt", "Hello", "--max-tokens", 9, "--ignore-eos", "--seed", 3, "--ctx", "1K"
    )
    assert done.returncode == 0
    assert done.stdout.decode().endswith("\n")
    errors = done.stderr.decode()
    assert NOTE in errors
    assert re.search(r"prompt 5 tokens at [\d.]+ tok/s, answer 9 tokens at [\d.]+ tok/s", errors)


def test_a_completion_as_json(packed):
    options = (
        "--max-tokens",
        6,
        "--ignore-eos",
        "--temperature",
        0,
        "--logprobs",
        2,
        "--kv",
        "int8",
        "--ctx",
        "2K",
    )
    first, second = (
        last_json(run("generate", packed, "--prompt", "Hello", "--json", *options)) for _ in range(2)
    )
    assert first["token_ids"] == second["token_ids"]
    assert first["synthetic"] is True
    assert first["finish_reason"] == "length"
    assert first["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert (first["engine"]["kv_format"], first["engine"]["context"]) == ("int8", 2048)
    assert first["timings"]["peak_rss_mib"] > 10
    assert [len(one["top"]) for one in first["logprobs"]] == [2] * 6
    chosen = [one["token"] for one in first["logprobs"]]
    assert chosen == first["token_ids"] == [one["top"][0]["token"] for one in first["logprobs"]]


def test_the_prompt_comes_from_where_it_is_said(packed, tmp_path):
    (tmp_path / "prompt.txt").write_text("Größe 🙂", encoding="utf-8")
    options = ("--json", "--max-tokens", 4, "--temperature", 0, "--ctx", "1K")
    answers = [
        last_json(run("generate", packed, "--prompt", "Größe 🙂", *options)),
        last_json(run("generate", packed, "--prompt-file", tmp_path / "prompt.txt", *options)),
        last_json(run("generate", packed, *options, text="Größe 🙂")),
        last_json(run("generate", packed, "--prompt-file", "-", *options, text="Größe 🙂")),
    ]
    assert len({tuple(answer["token_ids"]) for answer in answers}) == 1
    assert answers[0]["usage"]["prompt_tokens"] == len("Größe 🙂".encode())


def test_sampling_options_reach_the_sampler(packed):
    options = ("--json", "--max-tokens", 5, "--ctx", "1K", "--prompt", "x", "--ignore-eos")
    forced = last_json(run("generate", packed, *options, "--logit-bias", "65=100", "--logit-bias", "66=50"))
    assert forced["text"] == "AAAAA"
    cut = last_json(
        run("generate", packed, *options, "--logit-bias", "65=100", "--stop", "B", "--stop", "AAA")
    )
    assert (cut["text"], cut["finish_reason"]) == ("", "stop")
    penalised = last_json(
        run(
            "generate",
            packed,
            *options,
            "--temperature",
            0,
            "--logit-bias",
            "65=100",
            "--frequency-penalty",
            2,
        )
    )
    assert penalised["text"].startswith("AA")


def test_synth_and_convert_say_what_they_made(config, tmp_path):
    from mindnano.cli import demo_checkpoint

    small = json.loads(config.read_text()) | demo_checkpoint.CONFIG
    (tmp_path / "config.json").write_text(json.dumps(small))
    made = last_json(run("synth", tmp_path / "config.json", tmp_path / "s.mn", "--recipe", "w4", "--json"))
    assert made["synthetic"] is True
    assert made["bytes"] == (tmp_path / "s.mn").stat().st_size
    again = run("synth", tmp_path / "config.json", tmp_path / "s.mn")
    assert (again.returncode, "exists already" in again.stderr.decode()) == (2, True)
    spoken = run("synth", tmp_path / "config.json", tmp_path / "s.mn", "--force")
    assert NOTE in spoken.stdout.decode()

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    demo_checkpoint.write(folder)
    made = last_json(run("convert", folder, tmp_path / "c.mn", "--json"))
    assert (made["synthetic"], made["recipe"]) == (False, "mixed")
    answer = last_json(
        run("generate", tmp_path / "c.mn", "--prompt", "x", "--max-tokens", 2, "--ctx", "1K", "--json")
    )
    assert answer["synthetic"] is False
    assert answer["engine"]["recipe"] == "mixed"


def test_doctor_reports_the_machine():
    found = last_json(run("doctor", "--json"))
    assert found["engine"]["isa"] in found["machine"]["isas"]
    assert found["machine"]["available"] > 0
    assert all(finding["problem"] and finding["remedy"] for finding in found["findings"])
    spoken = run("doctor")
    assert spoken.returncode == 0
    assert max(map(len, spoken.stdout.decode().splitlines())) <= 80


def test_demo_runs_the_main_job():
    done = run("demo", "--json", timeout=240)
    result, spoken = last_json(done), done.stderr.decode()
    assert result["repeats"] and result["synthetic"] is not builtin.trained()
    assert max(map(len, spoken.splitlines())) <= 80
    sizes = {(row["kv_layout"], row["kv_format"]): row["kv_bytes"] for row in result["kv"]}
    assert len(sizes) == 4
    assert sizes["latent", "int8"] < sizes["latent", "bf16"] < sizes["expanded", "int8"]
    assert sizes["expanded", "int8"] < 0.6 * sizes["expanded", "bf16"]
    if result["synthetic"]:
        assert "random weights" in spoken and all(row["same_top"] > 0.5 for row in result["kv"])
    else:
        assert "random" not in spoken and all(all(row["right"]) for row in result["kv"])
        assert "Anna" in result["story"]
    kinds = {(kind["kv_layout"], kind["kv_format"]) for kind in result["plan"]["kinds"]}
    assert kinds == sizes.keys() and result["plan"]["available_bytes"] > 0


def test_the_demo_plans_the_published_model(config):
    assert json.loads(LING_TINY.read_text()) == json.loads(config.read_text())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "--prompt", "x", "--device", "rknpu"], "librknnrt"),
        (["generate", "--prompt", "x", "--device", "gpu"], 'Choose from: "auto", "cpu", "rknpu"'),
        (["generate", "--prompt", "x", "--kv", "int4"], "--kv"),
        (["generate", "/no/such/model", "--prompt", "x"], "/no/such/model"),
        (["generate", "--prompt", "x", "--ctx", "8Q"], "8Q"),
        (["generate", "--prompt", "x", "--ctx", "9G"], "9G"),
        (["generate", "--prompt", "x", "--temperature", "-1"], "temperature"),
        (["generate", "--prompt", "x", "--prompt-file", "y"], "--prompt-file"),
        (["generate", "--prompt-file", "/no/such/file"], "/no/such/file"),
        (["generate", "--prompt", ""], "at least one token"),
        (["generate", "--prompt", "x", "--ctx", "16", "--memory-reserve", "90TiB"], "reserve"),
        (["generate", "--prompt", "x" * 99, "--ctx", "64"], "context"),
        (["generate", "--prompt", "x", "--logit-bias", "3"], "ID=BIAS"),
        (["generate", "--prompt", "x", "--logit-bias", "99999=1"], "99999"),
        (["generate", "--prompt", "x", "--max-tokens", "many"], "--max-tokens"),
        (["generate", "--bogus"], "--bogus"),
        (["generate", "--prompt", "-x", "--ctx", "0"], "ctx"),
        (["convert", "/no/such/folder", "target"], "/no/such/folder"),
        (["convert", "only-one"], "TARGET"),
        (["synth", "/no/such/config.json", "target"], "/no/such/config.json"),
        (["chat", "--ctx", "0"], "ctx"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_users_error_is_one_line(arguments, words, capfd):
    status = main(arguments)
    shown, errors = capfd.readouterr()
    lines = [line for line in errors.splitlines() if NOTE not in line]
    assert status == 2
    assert shown == ""
    assert len(lines) == 1
    assert lines[0].startswith("mindnano: ")
    assert words in lines[0]


def test_bytes_that_are_no_text(packed):
    done = subprocess.run(
        [*RUN, "generate", str(packed)], input=b"ab\xff", capture_output=True, timeout=60, env=environment()
    )
    assert done.returncode == 2
    assert b"not UTF-8 at byte 2" in done.stderr


def start(*arguments):
    return subprocess.Popen(
        [*RUN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env=environment(),
    )


def test_ctrl_c_ends_with_130(packed):
    child = start(
        "generate", packed, "--prompt", "x", "--ignore-eos", "--max-tokens", 100000, "--ctx", "120K"
    )
    assert child.stdout.read(1)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"Traceback" not in errors


def test_a_closed_pipe_is_quiet(packed):
    child = start("generate", packed, "--prompt", "x", "--ignore-eos", "--max-tokens", 5000, "--ctx", "8K")
    assert child.stdout.read(1)
    child.stdout.close()
    errors = child.stderr.read()
    child.stdin.close()
    assert child.wait(timeout=60) == 141
    assert errors.decode().splitlines() == [
        f"mindnano: {NOTE}, so its text means nothing; for speed, memory and tests only"
    ]
    child.stderr.close()


def test_a_conversation_from_a_pipe(packed, tmp_path):
    lines = [
        "hello",
        "/stats",
        "/save one",
        "first line \\",
        "second line",
        '"""a',
        "b",
        'c"""',
        "/think maybe",
        "/frobnicate",
        "/load none",
        "/load one",
        "/system Be brief.",
        "again",
        "/quit",
        "never read",
    ]
    done = run(
        "chat",
        packed,
        "--max-tokens",
        5,
        "--ctx",
        "4K",
        "--session-dir",
        tmp_path,
        text="\n".join(lines) + "\n",
    )
    errors = done.stderr.decode()
    assert done.returncode == 0
    assert NOTE in errors
    for words in (
        "answer 5 tokens",
        "saved one",
        "expected on or off",
        "/frobnicate: no such command",
        "session 'none'",
        "loaded one: 2 messages",
    ):
        assert words in errors, errors
    assert "Traceback" not in errors


def test_ctrl_c_stops_the_answer_and_not_the_program(packed):
    terminal = Terminal("chat", packed, "--max-tokens", 100000, "--ctx", "120K", "--ignore-eos")
    terminal.wait_for(">>> ")
    terminal.type("tell me everything\n")
    terminal.wait_for(r"everything\r\n.{20}")
    terminal.type("\x03")
    terminal.wait_for("stopped")
    terminal.wait_for(">>> ")
    terminal.interrupt_until("/quit leaves")
    terminal.type("/system Be brief.\n")
    terminal.wait_for(">>> ")
    terminal.type("/nonsense\n")
    terminal.wait_for("no such command")
    terminal.type("/quit\n")
    assert terminal.end() == 0
