"""Values as records of the compacted topic, and back."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.kafka_store import read_value, value_record

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20) | st.sampled_from(["%2F", "/%"])


@given(KEYS, KEYS | st.just(""), st.none() | st.binary(min_size=1), st.none() | st.integers(0, 2**50))
def test_a_value_is_read_as_it_was_written(key: str, member: str, body: bytes | None, due: int | None) -> None:
    stored = None if body is None else Stored(body, None if member else due)
    record = value_record(7, Slot(key, member), stored, 3)
    fetched = SimpleNamespace(key=record.key, value=record.value or None, headers=list(record.headers))
    assert read_value(fetched) == (Slot(key, member), stored)
    assert record.partition == 3


@given(st.lists(st.tuples(KEYS, KEYS | st.just("")), unique=True, max_size=20))
def test_no_two_values_have_one_key(slots: list[tuple[str, str]]) -> None:
    assert len({value_record(1, Slot(*each), None, 0).key for each in slots}) == len(slots)


@pytest.mark.parametrize("key", [None, b"", b"/m", b"a/", b"\xff"])
def test_what_another_program_wrote_is_no_value(key: bytes | None) -> None:
    assert read_value(SimpleNamespace(key=key, value=b"x", headers=[])) is None
