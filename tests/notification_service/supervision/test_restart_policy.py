"""When a dead worker is started again."""

from notification_service.supervision.exit_rules import MAX_EXITS, RestartPolicy


def test_the_pause_doubles_while_exits_follow_each_other_up_to_two_seconds():
    policy = RestartPolicy(200)
    pauses = [policy.note_exit(now) for now in range(0, 8_000, 1_000)]
    assert pauses == [200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000]


def test_after_a_quiet_minute_it_begins_small_again():
    policy = RestartPolicy(200)
    for now in range(5):
        policy.note_exit(now)
    assert policy.note_exit(61_000) == 200


def test_too_many_exits_within_a_minute_end_it():
    policy = RestartPolicy(200)
    pauses = [policy.note_exit(now) for now in range(MAX_EXITS)]
    assert pauses[-1] is None
    assert None not in pauses[:-1]


def test_as_many_over_a_longer_time_do_not():
    policy = RestartPolicy(200)
    assert None not in [policy.note_exit(now * 10_000) for now in range(100)]


def test_a_clock_that_was_set_back_forgives():
    policy = RestartPolicy(200)
    for _ in range(MAX_EXITS - 1):
        policy.note_exit(1_000_000)
    assert policy.note_exit(0) == 200


def test_exits_that_an_envelope_is_counted_for_make_the_pause_longer_and_end_nothing():
    policy = RestartPolicy(200)
    assert [policy.note_explained(now) for now in range(5)] == [200, 400, 800, 1_600, 2_000]
    assert None not in [policy.note_explained(now) for now in range(100)]
    assert policy.note_exit(100) == 2_000


def test_nor_do_they_count_beside_others():
    policy = RestartPolicy(200)
    for now in range(0, 2 * MAX_EXITS, 2):
        policy.note_explained(now)
        assert (policy.note_exit(now + 1) is None) == (now == 2 * (MAX_EXITS - 1))
