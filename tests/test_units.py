"""Sizes as people write them."""

import pytest

from mindnano.errors import MindNanoError, shorten
from mindnano.units import format_bytes, parse_bytes, parse_size


@pytest.mark.parametrize(
    ("text", "value"),
    [("8192", 8192), ("8K", 8192), ("8k", 8192), (" 1.5K ", 1536), ("1M", 1 << 20), (0, 0), (77, 77)],
)
def test_tokens(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16GiB", 16 << 30),
        ("512M", 512 << 20),
        ("512MiB", 512 << 20),
        ("0.5 GiB", 1 << 29),
        ("16GB", 16 * 10**9),
        ("7B", 7),
        ("1TiB", 1 << 40),
        (5, 5),
    ],
)
def test_bytes(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "text", ["", "K", "-1", "8X", "1e3", "8 8", "0x10", "9" * 40, "1.5", None, True, 1.5, "8GiB"]
)
def test_no_number_of_tokens(text):
    with pytest.raises(MindNanoError, match="expected something like"):
        parse_size(text)


def test_formatting():
    assert [format_bytes(n) for n in (17, 1536, 5 << 20, 11 << 29, 3 << 40)] == [
        "17 B",
        "1.5 KiB",
        "5.0 MiB",
        "5.5 GiB",
        "3.0 TiB",
    ]


def test_messages_are_one_short_line():
    assert str(MindNanoError("a\nb\tc")) == "a b c"
    assert len(shorten("x" * 10**6)) <= 80 and len(shorten({str(i): [i] * 99 for i in range(10**4)})) <= 80
