"""Exactly once on files and SQLite: the allowed effects of restarts, outages, forgetting and other strategies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import DEADLINE_MS, P0, P1, Service, envelope_line

from guardian.headers import cut_headers
from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Line, encode_line
from resequencer.errors import ConfigurationError
from resequencer.record import Cut
from resequencer.settings import ResequencerSettings

GARBAGE = (b"no json", b'{"key": "k", "value-base64": "/wD+"}', b'{"key": "k", "value": "k\\u00fcrzer"}', b"\xff\xfe")


def test_envelopes_leave_in_order(service: Service) -> None:
    service.tell("u", 4, 2, 1, 3)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4]


def test_nothing_is_told_twice_after_restarts(service: Service) -> None:
    service.tell("u", 2, 1, 1, 4)
    service.run()
    for _ in range(3):
        service.restart()
        service.run()
    service.tell("u", 3, 2)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4]
    assert len(set(service.numbers)) == len(service.numbers) == 4
    assert service.dead == []


@pytest.mark.parametrize(
    "plan", [{}, {"storage": "none", "acknowledge_handled": True}, {"storage": "none"}], ids=["embedded", "none", "none stashed"]
)
def test_an_input_file_that_was_rewritten_while_the_service_was_stopped_is_refused_and_nothing_of_it_is_lost(
    new_service: Callable[..., Service], plan: dict[str, Any]
) -> None:
    """A line begins where reading would go on, and those before it would be lost."""
    service = new_service(**plan)
    service.tell("a", 1)
    service.tell("a", 2)
    service.run()
    service.stop()
    file = service.directory / "in" / "partition-0.jsonl"
    with file.open("wb") as rewritten:
        rewritten.writelines(envelope_line(unit, 1) + b"\n" for unit in "bcdefg")
    with pytest.raises(
        TransportRefused, match=r"partition-0.jsonl: holds other bytes before position .*or move it away and give"
    ):
        service.start().run()
    service.kill()
    assert [each.unit for each in service.notifications] == ["a", "a"]
    file.rename(file.with_name("partition-1.jsonl"))
    service.start().run()
    assert [each.unit for each in service.notifications] == ["a", "a", *"bcdefg"]
    assert service.dead == []


@pytest.mark.parametrize("sequence", [2, 1], ids=["with output", "without"])
def test_a_position_that_a_dead_worker_did_not_write_is_written_without_a_new_record(service: Service, sequence: int) -> None:
    positions = service.directory / "out" / "positions.json"
    service.tell("u", 1)
    service.run()
    before = positions.read_bytes()
    service.tell("u", sequence)
    service.run()
    service.stop()
    after = json.loads(positions.read_bytes())
    positions.write_bytes(before)
    service.start().run()
    found = json.loads(positions.read_bytes())
    offsets = [[(each["offset"], each["highest"]) for each in one["partitions"]] for one in (found, after)]
    assert offsets[0] == offsets[1] != [(each["offset"], each["highest"]) for each in json.loads(before)["partitions"]]
    assert service.sequences("u") == sorted({1, sequence})


def test_a_deadline_stands_where_it_stood_after_a_restart(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.clock.advance(DEADLINE_MS - 1)
    service.restart()
    service.run()
    assert service.notifications == []
    service.run_after(1)
    assert [(each.sequence, each.incomplete) for each in service.notifications] == [(2, "sequence:1")]


def test_later_arrivals_do_not_extend_a_deadline(service: Service) -> None:
    service.tell("u", 3)
    service.run()
    service.tell("u", 2)
    service.run_after(20_000)
    assert service.notifications == []
    service.run_after(1_000)
    assert service.sequences("u") == [2, 3]


def test_a_retry_stands_where_it_stood_after_a_restart(service: Service) -> None:
    service.handler.away_until["u#A#1"] = service.clock.now() + 1
    service.tell("u", 1, 2)
    service.run()
    service.restart()
    service.run_after(2_999)
    assert service.notifications == []
    service.run_after(1)
    assert service.sequences("u") == [1, 2]


def test_a_backlog_read_after_an_outage_makes_nothing_incomplete(new_service: Callable[..., Service]) -> None:
    service = new_service(batch_size=2)
    for unit in range(10):
        service.tell(f"u{unit}", 2)
    service.run()
    service.stop()
    service.clock.advance(600_000)
    for sequence in (4, 3, 1):
        for unit in range(10):
            service.tell(f"u{unit}", sequence)
    service.start().run()
    assert [each.incomplete for each in service.notifications] == [None] * 40
    assert all(service.sequences(f"u{unit}") == [1, 2, 3, 4] for unit in range(10))


def test_after_the_backlog_what_is_still_missing_is_released_at_once(new_service: Callable[..., Service]) -> None:
    service = new_service(batch_size=1)
    service.tell("u", 2)
    service.tell("v", 2)
    service.run()
    service.stop()
    service.clock.advance(600_000)
    service.tell("v", 1)
    service.start().run()
    assert {(each.identity, each.incomplete) for each in service.notifications} == {
        ("u#A#2", "sequence:1"),
        ("v#A#1", None),
        ("v#A#2", None),
    }


def test_garbage_costs_a_dead_letter_with_its_exact_bytes(service: Service) -> None:
    service.put(*GARBAGE)
    service.tell("u", 1)
    service.run()
    assert [each.value for each in service.dead] == [b"no json", b"\xff\x00\xfe", "kürzer".encode(), b"\xff\xfe"]
    assert service.sequences("u") == [1]
    service.restart()
    service.run()
    assert len(service.dead) == 4


def test_what_was_cut_before_it_came_here_is_a_dead_letter_that_says_what_it_was(service: Service) -> None:
    """As the bridge writes it. The service's own headers stand behind the reason, as with a value that it has cut itself."""
    cut = cut_headers(Cut(70_000_000, "ab" * 32))
    service.put(encode_line(Line(b"beginning", b"u", (("a", b"1"), *cut))).rstrip())
    service.run()
    (dead,) = service.dead
    assert (dead.value, dead.reason) == (b"beginning", "too-large")
    (line,) = service._lines("dead-letters")
    names = list(line["headers"])
    assert (names[0], names[-2:]) == ("a", [name for name, _ in cut])
    assert line["headers"]["dead-letter-value-length"] == "70000000"


def test_a_crash_before_anything_is_committed_reads_it_again(service: Service) -> None:
    service.tell("u", 1)
    service.kill()
    service.start().run()
    assert service.sequences("u") == [1]


def test_a_new_partition_that_appears_is_taken_over_while_running(service: Service) -> None:
    service.run()
    assert set(service.cycle.partitions.owned) == set()
    service.tell("u", 1)
    service.run()
    service.tell("v", 2, 1, partition=1)
    service.run()
    assert (service.sequences("u"), service.sequences("v")) == ([1], [1, 2])
    assert set(service.cycle.partitions.owned) == {P0, P1}


def test_a_partition_that_goes_and_comes_back_goes_on_where_it_was(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    file = service.directory / "in" / "partition-0.jsonl"
    away = Path(file.rename(service.directory / "in" / "away"))
    service.run()
    assert (service.report_units().waiting, service.report_units().active) == (0, 0)
    away.rename(file)
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2]


def test_only_after_the_storage_forgot_anything_repeats_and_then_it_says_so(service: Service) -> None:
    service.tell("u", 1, 2)
    service.run()
    service.stop()
    service.forget_database()
    service.start()
    service.tell("u", 3)
    service.run()
    assert [(each.sequence, each.is_possible_duplicate) for each in service.notifications] == [
        (1, False),
        (2, False),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert service.cycle.partitions.heals == 1
    service.restart()
    service.run()
    assert len(service.notifications) == 5


def test_a_forgotten_dead_letter_repeats_marked(service: Service) -> None:
    service.put(b"no json")
    service.run()
    service.stop()
    service.forget_database()
    service.start().run()
    assert [each.is_possible_duplicate for each in service.dead] == [False, True]


def test_after_a_crash_before_the_storage_was_lost_what_left_beyond_the_position_repeats_marked(service: Service) -> None:
    """The notification left, but its position did not; then the storage is lost, too."""
    service.tell("u", 1)
    service.run()
    positions = service.directory / "out" / "positions.json"
    before = positions.read_bytes()
    service.tell("u", 2)
    service.run()
    service.kill()
    positions.write_bytes(before)
    service.forget_database()
    service.start().run()
    assert [(each.sequence, each.is_possible_duplicate) for each in service.notifications] == [
        (1, False),
        (2, False),
        (1, True),
        (2, True),
    ]


def test_damaged_positions_repeat_nothing_while_the_storage_remembers(service: Service) -> None:
    service.tell("u", 1, 3)
    service.run()
    service.stop()
    (service.directory / "out" / "positions.json").write_bytes(b'{"format": 1, "len')
    service.start()
    service.tell("u", 2)
    service.run()
    assert service.sequences("u") == [1, 2, 3]
    assert [each.is_possible_duplicate for each in service.notifications] == [False, True, True]


def test_forty_starts_without_a_commit_are_no_loss_of_memory(service: Service) -> None:
    """The storage forgets who owned a partition without committing anything; the position must not name such an owner."""
    service.tell("u", 1, 3)
    service.run()
    service.kill()
    (service.directory / "out" / "positions.json").write_bytes((service.directory / "out" / "positions.json").read_bytes())
    for _ in range(40):
        service.start().run()
        service.kill()
    service.start()
    service.tell("u", 2)
    service.run()
    assert [each.is_possible_duplicate for each in service.notifications] == [False] * 3
    assert service.cycle.partitions.heals == 0


def test_forty_takeovers_after_one_that_published_are_no_loss_of_memory(service: Service) -> None:
    service.tell("u", 1)
    service.run()
    positions = service.directory / "out" / "positions.json"
    notifications = service.directory / "out" / "notifications.jsonl"
    before = (positions.read_bytes(), notifications.read_bytes())
    service.tell("u", 2, 5)
    service.run()
    service.kill()
    # As if the worker had been killed between the commit and the publication of its output.
    positions.write_bytes(before[0])
    notifications.write_bytes(before[1])
    for _ in range(40):
        service.start().run()
        service.kill()
    service.start()
    service.tell("u", 3, 4)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4, 5]
    assert service.cycle.partitions.heals == 0
    assert not any(each.is_possible_duplicate for each in service.notifications)


def test_another_strategy_is_refused_while_units_wait(service: Service) -> None:
    service.tell("u", 2)
    service.run()
    service.stop()
    other = Service(service.directory, strategy="STRICT_SEQUENCE")
    other.start()
    with pytest.raises(ConfigurationError, match="unit 'u' waits in a state of SEQUENCE; run SEQUENCE until nothing waits"):
        other.run()
    other.kill()


def test_another_strategy_goes_on_with_idle_units_and_repeats_nothing(service: Service) -> None:
    service.tell("u", 1, 2)
    service.run()
    service.stop()
    other = Service(service.directory, strategy="STRICT_SEQUENCE")
    other._tokens = service._tokens
    other.start()
    other.tell("u", 2, 1)
    other.run()
    assert other.sequences("u") == [1, 2]
    other.kill()


def test_a_unit_that_idled_out_is_told_nothing_twice(service: Service) -> None:
    service.tell("u", 1, 2)
    service.run()
    service.run_after(60_000)
    assert service.report_units().active == 0
    service.tell("u", 1, 2, 3)
    service.run()
    assert service.sequences("u") == [1, 2, 3]


def test_what_expired_is_begun_afresh_and_what_waits_never_expires(new_service: Callable[..., Service]) -> None:
    service = new_service(retention_ms=60_000, resequencer=ResequencerSettings(stash_timeout_ms=3_600_000))
    service.tell("idle", 1)
    service.tell("waiting", 2)
    service.run()
    assert service.live(70_000) == 1
    service.kill()
    service.start()
    service.tell("waiting", 1)
    service.run()
    assert service.sequences("waiting") == [1, 2]


def test_a_torn_last_line_of_the_input_is_waited_for(service: Service) -> None:
    line = envelope_line("u", 1)
    file = service.directory / "in" / "partition-0.jsonl"
    file.write_bytes(line[:50])
    service.run()
    assert (service.notifications, service.dead) == ([], [])
    file.write_bytes(line + b"\n")
    service.run()
    assert service.sequences("u") == [1]
