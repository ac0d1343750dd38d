"""The demo's part for a trained model, here run on random weights: what it asks, shows and reports."""

import io

import pytest
from rich.console import Console

from mindnano import LLM, data
from mindnano.cli import demo, demo_trained


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from mindnano.checkpoint import tiny

    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny.build(path, seed=3)
    return path


def test_the_question_holds_the_facts_in_order_and_fits(model):
    question = demo_trained.QUESTIONS[1][0]
    with LLM(model, context=512) as llm:
        text = demo_trained.message(llm, question)
        used = len(llm.chat_tokens([{"role": "user", "content": text}]))
    assert demo_trained.LENGTH - 20 < used <= demo_trained.LENGTH
    places = [text.index(fact) for _, fact in demo_trained.FACTS]
    assert places == sorted(places) and text.endswith(f"\n{question}")
    assert all(text[at - 2] in ".!?" for at in places)
    chapters = data.CHAPTERS.read_text(encoding="utf-8")
    for _, fact in demo_trained.FACTS:
        assert text.count(fact) == 1 and fact not in chapters
        text = text.replace(fact + " ", "")
    assert text.removesuffix(f"\n{question}") in chapters


def test_the_answers_are_in_the_facts():
    for question, value in demo_trained.QUESTIONS:
        key = question.removesuffix("?").split()[-1]
        said = [fact for _, fact in demo_trained.FACTS if f" {key} " in fact]
        assert said[-1].endswith(f" {value}.")


def test_what_a_model_gets_wrong_is_shown(model, monkeypatch):
    monkeypatch.setattr(demo_trained, "LENGTH", 900)
    monkeypatch.setattr(demo_trained, "CONTEXT", 1024)
    out = io.StringIO()
    found = demo_trained.run(
        Console(file=out, width=80),
        lambda _, **options: LLM(model, **({"context": 512} | options)),
        demo.KINDS,
    )
    assert found["repeats"] and [(row["kv_layout"], row["kv_format"]) for row in found["kv"]] == list(
        demo.KINDS
    )
    spoken = out.getvalue()
    assert spoken.count("WRONG") == 2 and "right)" not in spoken
    for row in found["kv"]:
        assert row["right"] == [False, False] and 850 < row["prompt_tokens"] <= 900
        assert f"{row['kv_layout']} {row['kv_format']}" in spoken
