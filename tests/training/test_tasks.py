"""Chats, stories and retrieval tasks: that they are in the engine's chat format, and that their answers are right."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from mindnano.tokenizer import ChatTemplate
from training import chats, data, retrieval
from training.stories import story
from training.words import KEYS, NAMES


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("system", ["", "Answer in short sentences."])
@pytest.mark.parametrize("turns", [1, 3])
def test_chats_are_prompts_of_the_template(turns, system, thinking):
    """What stands before the last answer is the prompt that the engine makes of the conversation."""
    conversation = [(f"Question {n}?", f"Thought {n}.", f"Answer {n}.") for n in range(turns)]
    messages = [{"role": "system", "content": system}] if system else []
    for question, _, answer in conversation:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    prompt = ChatTemplate().render(messages[:-1], enable_thinking=thinking)
    parts = chats.render(conversation, thinking, system)
    assert "".join(text for text, _ in parts[:-1]) == prompt
    tail = f"Thought {turns - 1}.</think>" if thinking else ""
    assert parts[-1] == (f"{tail}Answer {turns - 1}.<|role_end|>", True)


def sentences(r, tokens):
    return [f" Sentence {n}." for n in range(tokens // 4)]


@pytest.mark.parametrize("seed", range(20))
def test_the_last_value_holds(seed):
    """Reading the text from its start, a later statement about a key replaces an earlier one."""
    text, facts = retrieval.make(Random(seed), sentences(None, 200), 12)
    found = {}
    for kind, key, value in re.findall(r"The (code|keeper) of (\w+) is(?: now)? (\w+)\.", text):
        found[kind, key] = value
    assert {(f.kind, f.key): f.value for f in facts} == found
    assert len(re.findall("is now", text)) == 3
    assert re.findall(r"Sentence (\d+)", text) == [str(n) for n in range(50)]


@pytest.mark.parametrize("seed", range(20))
def test_weights_mark_the_values(seed):
    """What counts as a value is what the text says, and the key that was asked for; in both forms of the task."""
    r = Random(seed)
    for parts in (retrieval.dense(r, sentences, 10, 48), retrieval.asked(r, sentences, 8, 100, 5)):
        whole = "".join(text for text, _ in parts)
        marked = [(n, text.strip()) for n, (text, weight) in enumerate(parts) if weight == retrieval.VALUE]
        values = [(n, text) for n, text in marked if text not in KEYS]
        assert len(values) >= 5
        for n, text in values:
            assert text in NAMES or re.fullmatch("[1-9][0-9]", text)
            key = re.search(r"(\w+) is ?$", "".join(text for text, _ in parts[:n]))[1]
            said = re.findall(rf"\b{key} is(?: now)? (\w+)", whole)
            assert said[-1] == text and len(said) >= 2
        for n, text in marked:
            if text in KEYS:
                before = "".join(text for text, _ in parts[:n])
                assert re.findall(r"of (\w+)\?", before)[-1] == text


def test_stories_keep_their_names():
    r = Random(5)
    for _ in range(300):
        name, animal = r.choice(NAMES), r.choice(("fox", "owl"))
        told = story(r, name, animal)
        assert name in told and animal in told
        assert not re.search(r"\ba [aeiou]|  |{|}|\ban [^aeiou]", told), told


def test_keys_are_distinct():
    assert len(set(KEYS)) == len(KEYS) and len(set(NAMES)) == len(NAMES)


def test_splits_share_nothing(tmp_path):
    """Every twentieth document is held out, and no held-out story is one of the others."""
    for n in range(40):
        file = tmp_path / "moby-dick/data" / f"chapter_{n}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"Chapter {n}.\n\nText.\n")
    (tmp_path / "moby-dick/data/data.txt").write_text("The whole book.\n")
    (tmp_path / data.CAPITALS).parent.mkdir(parents=True)
    (tmp_path / data.CAPITALS).write_text(json.dumps({"Ohio": "Columbus"}))
    train, valid = data.texts(tmp_path, "train"), data.texts(tmp_path, "valid")
    assert len(train) == 38 and len(valid) == 2 and not set(train) & set(valid)
    assert "The whole book." not in train + valid
    assert not set(data.stories("train")) & set(data.stories("valid")) and len(data.stories("valid")) > 300
