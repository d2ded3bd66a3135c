"""Pending output leaves in portions: guardian/sizes.py in a whole worker."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import P0, P1, Service

from guardian.ports import NotPublished, PartitionOutput, PublishRefused, Transport, TransportUnavailable
from guardian.positions import DoneOffsets, decode
from guardian.takeover import Metadata, find_metadata
from resequencer.handler import Handled
from resequencer.notification import Notification
from resequencer.record import Partition

ONE = 1
"""A portion of this size holds one record, whatever time it takes."""
TWO = 2_500
"""A portion of this size holds two notifications."""


class Output:
    """The output side of a transport. A test decides what becomes of a publication; each notification takes `takes_ms`."""

    def __init__(self) -> None:
        self.tried: list[list[PartitionOutput]] = []
        self.failures: list[Exception | None] = []
        self.takes_ms = 0
        self.polls: list[int] = []
        self.advance: Callable[[int], None] = lambda _: None

    def around(self, inner: Transport) -> Any:
        output = self

        class Told:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Any:
                output.polls.append(max_records)
                return inner.poll(max_records, timeout_ms, resting)

            def publish(self, outputs: Sequence[PartitionOutput]) -> None:
                output.tried.append(list(outputs))
                output.advance(output.takes_ms * sum(len(each.records) for each in outputs))
                if output.failures and (failure := output.failures.pop(0)):
                    raise failure
                inner.publish(outputs)

        return Told()

    def numbers(self) -> list[list[int]]:
        """Return the numbers of each call that had output."""
        calls = [[each.number for output in outputs for each in output.records] for outputs in self.tried]
        return [each for each in calls if each]

    def metadata(self) -> list[Metadata | None]:
        """Return the metadata of the first partition in each call that had output."""
        return [find_metadata(outputs[0].position.metadata) for outputs in self.tried if any(each.records for each in outputs)]


@pytest.fixture
def output() -> Output:
    return Output()


@pytest.fixture
def new_service(tmp_path: Path, output: Output) -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(portion_bytes: int, **plan: Any) -> Service:
        made.append(Service(tmp_path, portion_bytes=portion_bytes, **plan))
        made[-1].around_transport = output.around
        output.advance = made[-1].clock.advance
        made[-1].put()
        made[-1].put(partition=1)
        made[-1].start().run()
        output.tried.clear()
        return made[-1]

    yield make
    for each in made:
        each.kill()


def test_what_one_cycle_lets_out_leaves_in_portions_and_nothing_is_read_in_between(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(TWO)
    service.tell("u", 1, 2, 3, 4, 5)
    assert service.cycle.run_once() is True
    service.tell("u", 6)
    output.polls.clear()
    assert [service.cycle.run_once(), service.cycle.run_once()] == [False, False]
    assert (output.numbers(), set(output.polls)) == ([[1, 2], [3, 4], [5]], {0})
    assert [each and each.published for each in output.metadata()] == [2, 4, 5]
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4, 5, 6]


def test_the_next_owner_lets_leave_what_the_portions_before_its_time_did_not(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(TWO)
    service.tell("u", 1, 2, 3, 4, 5)
    service.cycle.run_once()
    service.kill()
    service.start().run()
    assert output.numbers() == [[1, 2], [3, 4], [5]]
    assert (service.sequences("u"), service.cycle.partitions.heals) == ([1, 2, 3, 4, 5], 0)


def test_a_takeover_waits_for_no_portion(new_service: Callable[..., Service], output: Output) -> None:
    """Its own publication is at most a position, while pending output may take any time, or fail."""
    service = new_service(ONE)
    output.failures = [RuntimeError("the process ends here")]
    service.tell("u", 1, 2, 3)
    with pytest.raises(RuntimeError):
        service.cycle.run_once()
    service.kill()
    output.tried.clear()
    service.start().cycle.partitions.follow_assignment()
    assert (output.tried, len(service.cycle.partitions.owned[P0].unpublished)) == ([], 3)
    service.run()
    assert service.sequences("u") == [1, 2, 3]


def test_told_to_stop_between_two_portions_it_leaves_the_rest_to_the_next(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(ONE)
    service.tell("u", 1, 2, 3, 4)
    service.cycle.run_once()
    service.stop()
    assert len(output.numbers()) <= 2
    service.start().run()
    assert service.sequences("u") == [1, 2, 3, 4]


def several(service: Service, counts: dict[int, int]) -> None:
    """Make envelopes of these sequences that make several notifications each, which name their record."""
    right = service.handler.handle

    def handle(*arguments: Any) -> Handled:
        (notification,) = right(*arguments).notifications
        count = counts.get(arguments[0].sequence, 1)
        position = ("source-position", str(notification.origin).encode())
        return Handled(tuple(_again(notification, (*notification.headers, position)) for _ in range(count)))

    service.handler.handle = handle  # type: ignore[method-assign]


def _again(notification: Notification, headers: Any) -> Notification:
    return Notification(
        notification.notification_id, notification.unit, notification.status, notification.value, headers, notification.origin
    )


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_portion_ends_at_a_records_last_output(
    new_service: Callable[..., Service], output: Output, *, is_taken_over: bool
) -> None:
    service = new_service(TWO)
    several(service, {1: 3, 3: 2, 4: 5})
    service.tell("u", 1, 2, 3, 4, 5)
    if is_taken_over:
        output.failures = [RuntimeError("the process ends here")]
        with pytest.raises(RuntimeError):
            service.cycle.run_once()
        service.kill()
        output.tried.clear()
        service.start()
    service.run()
    assert output.numbers() == [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10, 11], [12]]


def test_a_portion_that_failed_is_followed_by_a_smaller_one_and_that_by_larger_ones(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(9_000)
    output.failures = [NotPublished("it takes too long")] * 3
    service.tell("u", *range(1, 13))
    service.run()
    assert [len(each) for each in output.numbers()] == [8, 4, 2, 1, 2, 4, 5]
    assert service.sequences("u") == list(range(1, 13))


def test_what_may_have_left_is_tried_again_as_it_was(new_service: Callable[..., Service], output: Output) -> None:
    service = new_service(9_000)
    output.failures = [TransportUnavailable("no answer"), NotPublished("it takes too long"), TransportUnavailable("no answer")]
    service.tell("u", *range(1, 13))
    service.run()
    first, again, smaller, smaller_again, *_ = output.tried
    assert first == again
    assert smaller == smaller_again
    assert [len(each) for each in output.numbers()[:4]] == [8, 8, 4, 4]
    assert service.sequences("u") == list(range(1, 13))


def test_what_may_have_left_is_tried_again_as_it_was_when_another_partition_is_taken_away(
    new_service: Callable[..., Service], output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = new_service(9_000)
    service.tell("u", *range(1, 13))
    service.tell("w", *range(1, 13), partition=1)
    output.failures = [TransportUnavailable("no answer"), PublishRefused("not ours at the moment: the other one")]
    service.cycle.run_once()
    first = {each.partition: each for each in output.tried[0]}
    monkeypatch.setattr(type(service.servers.transport), "assignment", lambda _: [P0], raising=False)
    service.cycle.run_once()
    assert output.tried[2] == [first[P0]]
    monkeypatch.undo()
    service.run()
    assert (service.sequences("u"), service.sequences("w")) == (list(range(1, 13)), list(range(1, 13)))


def test_what_takes_long_is_followed_by_less_and_what_takes_no_time_by_more(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(9_000)
    output.takes_ms = 900
    service.tell("u", *range(1, 13))
    service.run()
    assert [len(each) for each in output.numbers()] == [8, 2, 2]
    output.takes_ms = 1
    service.tell("u", *range(13, 30))
    service.run()
    assert service.cycle._portions.size == 9_000


def test_no_partition_waits_for_the_portions_of_another(new_service: Callable[..., Service], output: Output) -> None:
    service = new_service(9_000)
    service.tell("u", *range(1, 31))
    service.tell("w", 1, 2, partition=1)
    service.cycle.run_once()
    (tried,) = output.tried
    assert {each.partition: len(each.records) for each in tried} == {P1: 2, P0: 6}


def test_where_the_source_is_the_store_the_position_waits_for_what_has_not_left(
    new_service: Callable[..., Service], output: Output
) -> None:
    """One envelope made two notifications, others one. No record counts as done before all its notifications have left."""
    service = new_service(TWO, storage="none", acknowledge_handled=True)
    several(service, {2: 2})
    offsets = []
    for sequence in (1, 2, 3, 4):
        offsets.append(service.input_size())
        service.tell("u", sequence)
    for _ in range(3):
        service.cycle.run_once()
    assert output.numbers() == [[1], [2, 3], [4, 5]]
    assert [_done(outputs, offsets) for outputs in output.tried] == [offsets[:1], offsets[:2], offsets]
    service.kill()
    service.start().run()
    assert service.sequences("u") == [1, 2, 2, 3, 4]


def _done(outputs: Sequence[PartitionOutput], offsets: Sequence[int]) -> list[int]:
    """Return which of these records the position calls done."""
    (position,) = [each.position for each in outputs if each.partition == P0]
    metadata = find_metadata(position.metadata)
    assert metadata is not None
    done = decode(position.offset, metadata.done) or DoneOffsets(position.offset)
    return [each for each in offsets if each < position.offset or done.is_done(each)]


def test_killed_between_two_portions_nothing_leaves_twice_where_the_source_is_the_store(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(ONE, storage="none", acknowledge_handled=True)
    service.tell("u", 2, 3, 1)
    service.tell("w", 1, 2)
    service.cycle.run_once()
    for _ in range(8):
        service.kill()
        service.start().cycle.run_once()
    service.run()
    assert (service.sequences("u"), service.sequences("w")) == ([1, 2, 3], [1, 2])


def test_killed_between_two_dead_letters_of_no_unit_none_is_lost_where_the_source_is_the_store(
    new_service: Callable[..., Service],
) -> None:
    """No active unit holds the position back, so the first portion leaves with a position below what is settled."""
    service = new_service(ONE, storage="none", acknowledge_handled=True)
    service.put(b"no json", b"no json either", b"none at all")
    service.cycle.run_once()
    for _ in range(4):
        service.kill()
        service.start().cycle.run_once()
    service.run()
    assert [each.value for each in service.dead] == [b"no json", b"no json either", b"none at all"]


def test_where_nothing_was_stored_and_what_waits_is_settled_the_position_waits_too(
    new_service: Callable[..., Service], output: Output
) -> None:
    service = new_service(ONE, storage="none")
    for unit in "uvw":
        service.tell(unit, 1)
    service.cycle.run_once()
    service.kill()
    service.start().run()
    assert sorted(each.unit for each in service.notifications) == ["u", "v", "w"]
