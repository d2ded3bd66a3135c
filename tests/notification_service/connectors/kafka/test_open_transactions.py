"""When the log reports that an open transaction holds a partition up."""

import logging

from notification_service.connectors.kafka.core.fencing import OpenTransactions
from resequencer.record import Partition

P0, P1 = Partition("T", 0), Partition("T", 1)
NOW = 1_774_740_835_941


def looked(*looks: tuple[int, int, int]) -> OpenTransactions:
    """Look several times. Each look gives the last stable offset, the log's end, and the milliseconds since the first look."""
    undecided = OpenTransactions()
    for end, log_end, after in looks:
        undecided.note({P0: end, P1: 3}, {P0: log_end, P1: 3}, NOW + after)
    return undecided


def test_a_transaction_that_is_soon_ended_is_not_told_of():
    assert looked((7, 8, 0), (7, 8, 4_999)).notes == ()
    assert looked((7, 8, 0), (8, 9, 4_999), (9, 10, 9_000)).notes == ()


def test_one_that_stays_open_is_named_with_where_since_when_and_what_to_do():
    (note,) = looked((7, 8, 0), (7, 58, 5_000)).notes
    assert note.startswith("T-0 has stood at offset 7 since 2026-03-28T23:33:55.941Z: a producer has a transaction open")
    assert "51 offsets from there on" in note
    assert "describe-producers --topic T --partition 0" in note
    assert "abort --topic T --partition 0 --start-offset 7" in note


def test_it_is_logged_once_and_once_more_when_it_is_over(caplog):
    with caplog.at_level(logging.WARNING):
        undecided = looked((7, 8, 0), (7, 8, 5_000), (7, 8, 6_000), (8, 8, 7_000))
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "T-0 has stood at offset 7 since 2026-03-28T23",
        "T-0",
    ]
    assert undecided.notes == ()


def test_a_clock_that_was_set_back_keeps_what_was_reported():
    assert looked((7, 8, 0), (7, 8, 5_000), (7, 8, -60_000)).notes != ()
