"""Cutting, numbering, replacing and patterns, for any text."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cuda_agent.workspace.tools.text import cut, expanded, numbered, part, printable, replaced

SHORT = st.text(alphabet="ab\n", max_size=12)


@settings(deadline=None)
@example("0" * 28, 1)
@given(st.text(max_size=400), st.integers(1, 300))
def test_a_cut_text_is_bounded_and_says_how_much_is_missing(text: str, limit: int):
    short = cut(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        head, _, rest = short.partition("\n[... ")
        count = int(rest.partition(" ")[0]) if text.find("\n[... ") < 0 else len(text) - limit
        assert text.startswith(head) and abs(count - (len(text) - limit)) <= 1
        assert len(short) <= limit + 60


@settings(deadline=None)
@given(SHORT, SHORT, SHORT)
def test_replacing_does_what_was_asked_or_nothing(text: str, old: str, new: str):
    count = text.count(old) if old else 0
    if old == new or count == 0:
        with pytest.raises(ValueError):
            replaced(text, old, new, False)
    elif count == 1:
        before, _, after = text.partition(old)
        assert replaced(text, old, new, False) == replaced(text, old, new, True) == before + new + after
    else:
        with pytest.raises(ValueError, match=f"occurs {count} times"):
            replaced(text, old, new, False)
        assert replaced(text, old, new, True) == new.join(text.split(old))


@pytest.mark.parametrize("show", [numbered, part])
@settings(deadline=None)
@given(st.text(alphabet="ab\n", max_size=60), st.integers(1, 20), st.integers(1, 20))
def test_parts_of_a_text_name_what_they_leave_out(show: Callable[[str, int, int], str], text: str, offset: int, limit: int):
    lines = text.splitlines()
    wanted = lines[offset - 1 : offset - 1 + limit]
    shown = show(text, offset, limit).split("\n")
    if not wanted:
        assert shown == [f"[the file has {len(lines)} lines]"]
    else:
        assert [line.rpartition("\t")[2] for line in shown[: len(wanted)]] == wanted
        assert (len(shown) > len(wanted)) == (len(wanted) < len(lines))


def test_braces_stand_for_alternatives():
    assert sorted(expanded("a.{cpp,h{,pp}}")) == ["a.cpp", "a.h", "a.hpp"]
    assert expanded("{a}") == ["{a}"] and expanded("}{") == ["}{"]
    with pytest.raises(ValueError, match="64"):
        expanded("{a,b}" * 100)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_become_text_that_can_be_stored(data: bytes):
    assert printable(data.decode("utf-8", "surrogateescape")).encode("utf-8") is not None
