"""Instants as people and ISO 20022 read them."""

from domain.clock import instant_text


def test_an_instant_is_told_in_utc_to_the_millisecond():
    assert instant_text(1_774_740_835_941) == "2026-03-28T23:33:55.941Z"
    assert instant_text(0) == "1970-01-01T00:00:00.000Z"
    assert instant_text(1) == "1970-01-01T00:00:00.001Z"
