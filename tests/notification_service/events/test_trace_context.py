"""The trace context of a record: what is passed on, and what is dropped as the W3C says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.events.trace_context import trace_headers

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = b"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


def passed(parent: bytes = PARENT, state: bytes | None = None) -> dict[str, bytes]:
    return dict(trace_headers((("traceparent", parent), *((("tracestate", state),) if state is not None else ()))))


def test_a_valid_context_is_passed_on_as_it_came():
    assert passed(state=STATE) == {"traceparent": PARENT, "tracestate": STATE}


def test_a_record_without_a_context_gives_none():
    assert trace_headers((("schema-version", b"2"), ("trace", PARENT))) == ()


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        PARENT[:-1],
        PARENT + b"0",
        PARENT + b"-00",
        PARENT + b"\n",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        b"00-" + b"0" * 32 + PARENT[35:],
        PARENT[:36] + b"0" * 16 + b"-01",
        PARENT.replace(b"-", b"_"),
        b"0g" + PARENT[2:],
        b"01" + PARENT[2:] + b"1",
        b"01" + PARENT[2:] + b"-" + b"x" * 512,
    ],
)
def test_an_invalid_parent_drops_the_whole_context(parent):
    assert passed(parent, STATE) == {}


@pytest.mark.parametrize("parent", [PARENT, b"01" + PARENT[2:], b"cc" + PARENT[2:] + b"-what-may-come"])
def test_a_later_version_may_have_more_behind_it(parent):
    assert passed(parent) == {"traceparent": parent}


@pytest.mark.parametrize(
    "state", [b"a=1", b"a=1, b=2 ,\tc=3", b"a=1,,b=2", b"tenant@system=1", b"a=" + b"x" * 256, b"k=" + b"!" * 9]
)
def test_a_valid_state_is_passed_on(state):
    assert passed(state=state)["tracestate"] == state


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b",",
        b"a",
        b"a=",
        b"=1",
        b"A=1",
        b"a=1=2",
        b"a=1,a=2",
        b"a=" + b"x" * 257,
        b"a=\xc3\xa9",
        b"a=1\r\n",
        b"a" * 257 + b"=1",
        b",".join(b"k%d=1" % each for each in range(33)),
        b"a=" + b"x" * 200 + b",b=" + b"x" * 200 + b",c=" + b"x" * 200,
    ],
)
def test_an_invalid_state_is_dropped_and_the_parent_is_kept(state):
    assert passed(state=state) == {"traceparent": PARENT}


def test_a_state_has_512_bytes_at_most():
    fits = b"a=" + b"x" * 250 + b",b=" + b"x" * 256
    assert (len(fits), passed(state=fits)["tracestate"]) == (511, fits)
    assert "tracestate" in passed(state=fits + b" ")
    assert "tracestate" not in passed(state=fits + b"  ")


def test_of_several_headers_of_one_name_the_last_one_counts():
    assert dict(trace_headers((("traceparent", b"odd"), ("traceparent", PARENT)))) == {"traceparent": PARENT}
    assert trace_headers((("traceparent", PARENT), ("traceparent", b"odd"))) == ()


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_whatever_comes_what_is_passed_on_is_as_it_came_and_is_ascii(parent, state):
    for value in passed(parent, state).values():
        assert value in (parent, state)
        assert value.isascii()
