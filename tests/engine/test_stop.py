"""Stop strings against their plain definition, whatever the pieces."""

from hypothesis import given
from hypothesis import strategies as st

from mindnano.engine.stop import StopMatcher

letters = st.text("ab", max_size=12)


@given(letters, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_equals_cutting_the_whole_text(text, stops, data):
    matcher = StopMatcher(stops)
    shown, at = "", 0
    while at < len(text):
        size = data.draw(st.integers(1, len(text) - at))
        shown += matcher.push(text[at : at + size])
        at += size
        ends = [text[:at].find(stop) for stop in stops if stop in text[:at]]
        assert shown == text[: len(shown)]
        if ends:
            assert matcher.stopped
            break
        for stop in stops:  # nothing shown may be the beginning of a stop string that is still possible
            for length in range(1, len(stop)):
                assert not (text[:at].endswith(stop[:length]) and len(shown) > at - length)
    shown += matcher.finish()
    prefix = text[:at]
    found = [prefix.find(stop) for stop in stops if stop in prefix]
    assert shown == (prefix[: min(found)] if found else prefix)


def test_a_false_beginning_is_released():
    matcher = StopMatcher(["END"])
    assert matcher.push("so E") == "so "
    assert matcher.push("N") == ""
    assert matcher.push("ough") == "ENough"
    assert not matcher.stopped
