"""The batch size: a cycle takes only as much work as it can finish in time."""

from guardian.sizes import BatchSize


def test_it_begins_small():
    assert BatchSize(500, 1_000).at_once == 50
    assert BatchSize(5, 1_000).at_once == 5


def test_fast_handlers_get_all_they_are_allowed():
    batch_size = BatchSize(500, 1_000)
    batch_size.note(50, 5)
    assert batch_size.at_once == 500


def test_slow_handlers_get_what_they_manage_in_time():
    batch_size = BatchSize(500, 1_000)
    batch_size.note(50, 6_000)
    assert batch_size.at_once == 8


def test_one_that_takes_longer_than_the_target_is_still_taken():
    batch_size = BatchSize(500, 1_000)
    batch_size.note(1, 60_000)
    assert batch_size.at_once == 1


def test_it_recovers_when_the_handlers_do():
    batch_size = BatchSize(500, 1_000)
    batch_size.note(1, 60_000)
    for _ in range(30):
        batch_size.note(batch_size.at_once, batch_size.at_once)
    assert batch_size.at_once == 500


def test_an_empty_cycle_and_a_clock_that_was_set_back_teach_nothing():
    batch_size = BatchSize(500, 1_000)
    batch_size.note(0, 500)
    batch_size.note(10, -3_600_000)
    assert batch_size.at_once == 50
