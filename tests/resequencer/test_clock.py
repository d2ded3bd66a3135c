"""Instants as people and ISO 20022 write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resequencer.clock import instant_of, instant_text


def test_an_instant_is_told_in_utc_to_the_millisecond():
    assert instant_text(1_774_740_835_941) == "2026-03-28T23:33:55.941Z"
    assert instant_text(0) == "1970-01-01T00:00:00.000Z"
    assert instant_text(1) == "1970-01-01T00:00:00.001Z"


@given(st.integers(0, 253_402_300_799_999))
def test_it_is_read_as_it_was_written(instant):
    assert instant_of(instant_text(instant)) == instant


@pytest.mark.parametrize("text", ["2026-03-29T01:33:55.941+02:00", "2026-03-28T23:33:55.941", "20260328T233355.941Z"])
def test_other_forms_of_iso_8601_are_read_and_without_a_zone_it_is_utc(text):
    assert instant_of(text) == 1_774_740_835_941


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30T00:00", "9999-12-31T23:59:59-24:00"])
def test_what_is_no_instant_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the text is the library's.
        instant_of(text)
