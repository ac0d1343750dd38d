"""Answers taken apart, whatever pieces they come in."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindnano.server.answer import CallArguments, CallStarts, Content, Reasoning, Splitter
from mindnano.server.tools.form import Tool
from mindnano.server.tools.ling import LingForm

OBJECT = {"type": "object"}
TOOLS = [
    Tool("get_weather", None, OBJECT | {"properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
        "more": {"type": ["string", "null"]}, "spot": {"type": "object"}}}),
    Tool("ping", None, OBJECT),
]  # fmt: skip
PING = "<tool_call>ping</tool_call>"


def call(name, **arguments):
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def taken(text, thinks=False, tools=TOOLS, cuts=()):
    """Reasoning, content and calls of an answer that comes cut at some places."""
    splitter = Splitter(thinks, LingForm() if tools else None, tools)
    ends = [*sorted(cuts), len(text)]
    pieces = [p for begin, end in zip([0, *ends], ends, strict=False) for p in splitter.push(text[begin:end])]
    pieces += splitter.finish()
    assert splitter.position == len(text)
    reasoning = "".join(p.text for p in pieces if isinstance(p, Reasoning))
    content = "".join(p.text for p in pieces if isinstance(p, Content))
    assert content == "".join(text[begin:end] for begin, end in splitter.content_at)
    calls = [(p.name, "".join(a.text for a in pieces if isinstance(a, CallArguments) and a.index == p.index))
             for p in pieces if isinstance(p, CallStarts)]  # fmt: skip
    assert splitter.calls == len(calls)
    return reasoning, content, [(name, json.loads(arguments)) for name, arguments in calls]


WEATHER = {"city": 'Par"is\n', "days": 3, "exact": True, "more": None, "spot": {"x": [1]}}
WRITTEN = call("get_weather", city='Par"is\n', days=3, exact="true", more="null", spot='{"x": [1]}')
CASES = [
    ("plain text", False, ("", "plain text", [])),
    ("\n\nplain", False, ("", "\n\nplain", [])),
    ("so it is\n</think>\n\nYes", True, ("so it is", "Yes", [])),
    ("</think>Yes", True, ("", "Yes", [])),
    ("never ends", True, ("never ends", "", [])),
    ("<think>own\n</think>\nYes", False, ("own", "Yes", [])),
    (" <think>own</think>Yes", False, ("own", "Yes", [])),
    ("a < b <tool", False, ("", "a < b <tool", [])),
    ("</think> stays", False, ("", "</think> stays", [])),
    (WRITTEN, False, ("", "", [("get_weather", WEATHER)])),
    (f"Look: {WRITTEN}\n{PING}", False, ("", "Look: ", [("get_weather", WEATHER), ("ping", {})])),
    (f"hm\n{PING}", True, ("hm", "", [("ping", {})])),
    (f"hm{PING}still\n</think>\n\nDone", True, ("hmstill", "Done", [("ping", {})])),
    (f"hm</think>{PING}", True, ("hm", "", [("ping", {})])),
    (call("get_weather", city="</tool_call> <arg_key>"), False,
     ("", "", [("get_weather", {"city": "</tool_call> <arg_key>"})])),
    (call("get_weather", more="5"), False, ("", "", [("get_weather", {"more": "5"})])),
    (call("ping", any="[1, 2]", other="text"), False, ("", "", [("ping", {"any": [1, 2], "other": "text"})])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "thinks", "want"), CASES, ids=[text[:30] for text, _, _ in CASES])
def test_an_answer_is_the_same_in_any_pieces(text, thinks, want):
    assert taken(text, thinks) == want
    assert taken(text, thinks, cuts=range(1, len(text))) == want
    generator = random.Random(1)
    for _ in range(50):
        assert (
            taken(text, thinks, cuts=generator.sample(range(len(text)), generator.randrange(len(text))))
            == want
        )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", PING, "<tool_call>", "\n", "a", "<", "é", WRITTEN]),
        max_size=8,
    ),
    st.booleans(),
    st.data(),
)
def test_pieces_never_matter(parts, thinks, data):
    text = "".join(parts)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    try:
        want = taken(text, thinks)
    except json.JSONDecodeError:  # a call that isn't complete: no JSON, but the same one
        return
    assert taken(text, thinks, cuts=cuts) == want


def test_without_tools_a_call_is_text():
    assert taken(PING, tools=[]) == ("", PING, [])


def test_a_string_is_passed_on_while_it_is_written():
    splitter = Splitter(False, LingForm(), TOOLS)
    splitter.push("<tool_call>get_weather<arg_key>city</arg_key>\n<arg_value>")
    got = "".join(p.text for p in splitter.push("a long text that isn't finished"))
    assert got.startswith("a long text that")
    assert "finished" not in got  # that much could begin the closing marker


def test_content_begins_where_the_reasoning_ends():
    splitter = Splitter(True)
    pieces = splitter.push("x</think>\n\nyes")
    assert pieces == [Reasoning("x"), Content("yes")]
    assert splitter.content_at == [(11, 14)] and not splitter.thinking
