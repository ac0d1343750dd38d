"""Divergence, retrieval and greedy answers: right by hand, and on the built-in model."""

import math
import random

import numpy as np
import pytest

from mindnano.bench.progress import Progress
from mindnano.bench.quality import Plan, Variant, retrieval, run, summarize
from mindnano.bench.quality.variants import log_softmax
from mindnano.bench.records import Divergence, Parting, Results, Retrieval
from mindnano.errors import MindNanoError


def words(text):
    return len(text.split())


NOISE = retrieval.noise_of(None, "tests", 500)


@pytest.mark.parametrize("task", retrieval.TASKS)
@pytest.mark.parametrize("depth", retrieval.DEPTHS)
def test_questions_have_one_right_answer_where_it_is_asked_for(task, depth):
    for sample in range(5):
        asked = retrieval.ask(task, depth, str(sample), 900, words, NOISE)
        assert 850 < words(asked.text) <= 900
        text, _, question = asked.text.rpartition("\n")
        key = question.removeprefix("What is the code of ").removesuffix("?")
        last = text.rpartition(f"The code of {key} is ")[2].split(".")[0]
        assert last.removeprefix("now ") == asked.value
        assert text.count(f"The code of {key} is ") == (retrieval.CHANGES if task == "tracked" else 1)
        place = text.rfind(f"The code of {key} is") / len(text)
        # The fact's own sentence, and those of other keys beside it, are part of the text.
        assert abs(place - depth) < 0.15
        numbers = text.count("The code of ")
        assert numbers == {"one_key": 1, "many_keys": retrieval.MANY, "tracked": retrieval.CHANGES}[task]


def test_nothing_but_the_facts_has_digits():
    assert not any(character.isdigit() for line in NOISE for character in line)
    text = (
        "One. "
        + "A sentence with 7 in it that is long enough. "
        + "A sentence without any that is long enough. " * 25
    )
    assert all("7" not in line for line in retrieval.noise_of(text, "x"))


@pytest.mark.parametrize(
    "answer, value, right",
    [
        ("The code of amber is 42.", "42", True),
        ("42", "42", True),
        ("It is 142.", "42", False),
        ("24, no, 42", "42", False),
        ("<think>maybe 24</think>42", "42", True),
        ("", "42", False),
    ],
)
def test_answers_are_judged_by_their_first_number(answer, value, right):
    assert retrieval.right(answer, value) is right


def test_log_softmax_is_exact():
    logits = np.array([1000.0, 999.0, -1000.0], np.float32)
    assert np.exp(log_softmax(logits)).sum() == pytest.approx(1.0)
    assert log_softmax(logits)[0] == pytest.approx(-math.log(1 + math.exp(-1)))


def test_figures_come_from_samples():
    about = {
        "model": "m",
        "kv_layout": "latent",
        "kv_format": "int8",
        "against": "latent bf16",
        "source": "s",
    }
    r = random.Random(1)
    records = [
        *(
            Divergence(
                **about,
                length=512,
                sample=n,
                kl=[0.01 * r.random() for _ in range(8)],
                same_top=[1] * 7 + [0],
            )
            for n in range(6)
        ),
        *(
            Retrieval(**about, length=512, sample=n, task="one_key", depth=d, right=n != 0)
            for n in range(4)
            for d in (0.0, 1.0)
        ),
        *(
            Parting(**about, length=128, sample=n, tokens=64, position=position)
            for n, position in enumerate([3, 9, 27, None, None, 12, 40])
        ),
    ]
    found = {
        (q.measure, q.length): q for q in summarize([*records, records[0]])
    }  # the last one measured twice
    mean = found["kl_mean", 512]
    assert mean.value == pytest.approx(np.mean([one.kl for one in records[:6]]))
    assert mean.low < mean.value < mean.high
    assert (mean.samples, mean.segments) == (48, 6)
    assert found["kl_p99", 512].value > mean.value
    assert found["top1", 512].value == pytest.approx(7 / 8)
    assert (found["retrieval/one_key", 512].value, found["retrieval/one_key", 512].samples) == (0.75, 8)
    assert found["retrieval/one_key/1", 512].samples == 4
    parted = found["first_difference", 128]
    assert (parted.value, parted.censored, parted.samples) == (27, 2, 7)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality")
    plan = Plan(
        None,
        [Variant("latent", "fp32"), Variant("latent", "int8"), Variant("expanded", "bf16", "w4")],
        lengths=(96, 192),
        segments=4,
        positions=8,
        retrieval_lengths=(256,),
        retrieval_samples=1,
        greedy_prompts=2,
        greedy_tokens=8,
    )
    said = []
    with Results(folder) as results:
        run(plan, results, Progress(quiet=True), said.append)
    return folder, plan, said


def test_on_the_built_in_model(measured):
    folder, plan, said = measured
    with Results(folder) as results:
        found = {(q.kv_format, q.measure, q.length): q for q in summarize(results.records)}
        before = len(results.records)
        run(plan, results, Progress(quiet=True), said.append)
        assert len(results.records) == before  # nothing is measured twice
    for length in (96, 192):
        exact, rounded = found["fp32", "kl_mean", length], found["int8", "kl_mean", length]
        assert exact.samples == rounded.samples == 32
        # BF16 rounds to 8 bits, so even fp32 differs; a wrong cache would be off by whole nats.
        assert 0 < exact.value < 0.1
        assert 0 < rounded.value < 0.1
        assert exact.against.endswith("latent bf16")
    assert found["int8", "first_difference", 96].samples == 2


def test_synthetic_models_say_so_and_answer_no_questions(measured):
    folder, _, said = measured
    with Results(folder) as results:
        records = list(results.records)
    if not all(one.synthetic for one in records):
        pytest.skip("the built-in model has learned something")
    assert any("synthetic" in line for line in said)
    assert any("w4: left out" in line for line in said)
    assert not any(isinstance(one, Retrieval) for one in records)


def test_text_that_is_too_short_is_an_error(tmp_path):
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, said in (("short.txt", "segments"), ("bytes", "UTF-8"), ("none", "No such file")):
        plan = Plan(None, [Variant("latent", "int8")], lengths=(96,), segments=4, text=[tmp_path / name])
        with Results(tmp_path / "out") as results, pytest.raises(MindNanoError, match=said):
            run(plan, results, Progress(quiet=True), lambda line: None)
