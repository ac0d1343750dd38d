"""Stop strings against their plain definition, whatever the pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindnano.engine.stop import StopMatcher

stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def cut(text, stops):
    """Character by character: the text until the first stop string is complete, the longest one where
    several are.
    """
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def could_begin_a_stop(text, stops):
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


@given(st.text("abc", max_size=24), stop_lists, st.data())
@settings(max_examples=500)
def test_equals_its_definition_however_the_text_is_cut(text, stops, data):
    matcher, shown, at = StopMatcher(stops), "", 0
    while at < len(text):
        size = data.draw(st.integers(0, len(text) - at))
        shown += matcher.push(text[at : at + size])
        at += size
        expected, stop = cut(text[:at], stops)
        assert matcher.stopped == stop
        held = 0 if stop else could_begin_a_stop(expected, stops)
        assert shown == expected[: len(expected) - held]  # nothing leaked, and nothing held back without need
        if size == 0:
            shown, at = shown + matcher.push(text[at : at + 1]), at + 1
    shown += matcher.finish()
    assert shown == cut(text, stops)[0]
    assert matcher.finish() == "" == matcher.push("more" if matcher.stopped else "")


def test_a_false_beginning_is_released():
    matcher = StopMatcher(["END"])
    assert [matcher.push(piece) for piece in ("so E", "N", "ough")] == ["so ", "", "ENough"]
    assert matcher.stopped is None


@pytest.mark.parametrize("pieces", [["x", "<", "/s>", "y"], ["x</s>y"], ["x</", "s", ">", "", "y"]])
def test_nothing_comes_after_a_stop_string(pieces):
    matcher = StopMatcher(["</s>", "never"])
    assert "".join(matcher.push(piece) for piece in pieces) + matcher.finish() == "x"
    assert matcher.stopped == "</s>"
