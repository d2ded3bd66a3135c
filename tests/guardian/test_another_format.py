"""What is stored was read in another format of events: the start is refused, unless an operator accepts duplicates."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import P0, P1, Service, envelope_line
from harness.workloads.of_strategies import strategy_of
from msgspec.structs import replace

from guardian.ports import PartitionOutput, PublishRefused, Transport, TransportRefused, TransportStatus
from guardian.takeover import named_source, source_of
from notification_service.connectors.files.sink import FileTransport
from notification_service.events.identifiers import hash_id
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ConfigurationError
from resequencer.event import FIRST_FORMAT, Decoder, Event, Refusal
from resequencer.order import Order, OrderKind
from resequencer.record import Partition, Record
from resequencer.storage_port import Header


class Other:
    """A format in which the same records are events with other ids, and those of a unit in `moved` of another unit."""

    def __init__(self, inner: Decoder, moved: dict[str, str]) -> None:
        self._inner, self._moved = inner, moved

    def decode(self, record: Record) -> Event | Refusal:
        event = self._inner.decode(record)
        if isinstance(event, Refusal):
            return event
        identifier = f"other {event.event_id}"
        return replace(event, unit=self._moved.get(event.unit, event.unit), event_id=identifier, id_hash=hash_id(identifier))


@pytest.fixture
def in_format(tmp_path: Path) -> Any:
    service = Service(tmp_path)

    def configure(events: str, replaced: str | None = None, **moved: str) -> Service:
        service.kill()
        service.plan = replace(service.plan, events=events, replaced_events=replaced)
        is_first = events == FIRST_FORMAT
        service.around_decoder = (lambda decoder: decoder) if is_first else (lambda decoder: Other(decoder, moved))
        return service

    yield configure
    service.kill()


InFormat = Callable[..., Service]


@pytest.mark.parametrize("storage", ["embedded", "none"])
@pytest.mark.parametrize("first", [FIRST_FORMAT, "mapped-1"])
def test_a_format_that_only_made_dead_letters_is_corrected(in_format: InFormat, storage: str, first: str) -> None:
    service = in_format(first)
    service.plan = replace(service.plan, storage=storage, acknowledge_handled=storage == "none")
    service.put(b"no record", envelope_line("u", None))
    service.start().run()
    service.stop()
    for events in ("mapped-2", "mapped-3"):
        service = in_format(events)
        service.start().run()
        service.kill()
    service = in_format("mapped-3")
    service.tell("u", 2)
    service.start().run()
    service.stop()
    service = in_format("mapped-3")
    service.tell("u", 1)
    service.start().run()
    assert service.sequences("u") == [1, 2]
    assert len(service.dead) == 2
    assert not any(each.is_possible_duplicate for each in (*service.notifications, *service.dead))
    if storage == "embedded":
        service.stop()
        with pytest.raises(ConfigurationError, match="was read as mapped-3"):
            in_format(first).start().run()


def test_a_refusal_names_each_place_that_changed(in_format: InFormat) -> None:
    service = in_format("mapped-1")
    service.plan = replace(service.plan, mapping="unit=key&sequence=header%3Ase+q&flow=value%3Aa.b")
    service.tell("u", 1)
    service.start().run()
    service.stop()
    service = in_format("mapped-2")
    service.plan = replace(service.plan, mapping="unit=key&sequence=header%3Aseq&id=position")
    sequence, flow = "sequence was header:se q, is header:seq now", "flow was value:a.b, is not mapped now"
    places = f"({sequence}; {flow}; id was not mapped, is position now)"
    with pytest.raises(ConfigurationError) as refused:
        service.start().run()
    assert f"was read as mapped-1 {places}: an event" in str(refused.value)


def test_a_header_without_places_opens_and_is_refused_without_naming_them(in_format: InFormat) -> None:
    service = in_format("mapped-1")
    service.tell("u", 2)
    service.start().run()
    service.stop()
    service = in_format("mapped-1")
    service.plan = replace(service.plan, mapping="unit=key")
    service.start().stop()
    service = in_format("mapped-2")
    service.plan = replace(service.plan, mapping="unit=header%3Ax")
    with pytest.raises(ConfigurationError, match="was read as mapped-1: an event"):
        service.start().run()
    service = in_format("mapped-1")
    service.plan = replace(service.plan, mapping="unit=key")
    service.tell("u", 1)
    service.start().run()
    assert service.sequences("u") == [1, 2]


def test_a_start_is_refused_while_something_waits_and_also_while_nothing_does(in_format: InFormat) -> None:
    for sequence in (2, 1):
        service = in_format(FIRST_FORMAT)
        service.tell("u", sequence)
        service.start().run()
        service.stop()
        with pytest.raises(ConfigurationError, match=r'as mapped-1 now.*was read as ipf.*replaces = "ipf".*possible-duplicate'):
            in_format("mapped-1").start().run()


def test_each_format_knows_its_own_and_refuses_every_other(in_format: InFormat) -> None:
    service = in_format("mapped-1")
    service.tell("u", 1)
    service.start().run()
    service.stop()
    for other in ("mapped-2", FIRST_FORMAT):
        with pytest.raises(ConfigurationError, match="was read as mapped-1"):
            in_format(other, "mapped-3").start().run()
    again = in_format("mapped-1")
    again.tell("u", 2)
    again.start().run()
    assert again.sequences("u") == [1, 2]
    assert not any(each.is_possible_duplicate for each in again.notifications)


def test_a_format_that_never_read_anything_replaces_nothing(in_format: InFormat) -> None:
    in_format(FIRST_FORMAT).start().stop()
    service = in_format("mapped-1")
    service.tell("u", 1)
    service.start().run()
    assert service.sequences("u") == [1]


def test_what_came_until_an_operator_accepts_it_is_marked_and_nothing_later(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("idle", 1)
    service.tell("waits", 2)
    service.start().run()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT)
    service.tell("waits", 1)
    service.tell("idle", 1, identity="idle#A#1")
    service.start().run()
    service.tell("idle", 2)
    service.run()
    assert service.sequences("waits") == [1, 2]
    marked = [(each.unit, each.sequence, each.is_possible_duplicate) for each in service.notifications]
    assert sorted(marked) == [
        ("idle", 1, False), ("idle", 1, True), ("idle", 2, False), ("waits", 1, True), ("waits", 2, True),
    ]  # fmt: skip
    service.stop()
    service = in_format("mapped-1")
    service.start().run()
    assert len(service.notifications) == len(marked)


def test_a_crash_before_all_units_are_read_in_the_new_format_changes_nothing(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("u", 3)
    service.tell("w", 2)
    service.start().run()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT)
    service.tell("u", 2)
    service.start().run()
    service.kill()
    service = in_format("mapped-1")
    service.tell("u", 1)
    service.tell("w", 1)
    service.start().run()
    assert (service.sequences("u"), service.sequences("w")) == ([1, 2, 3], [1, 2])


def test_what_is_of_another_unit_now_is_a_dead_letter_at_its_deadline(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("u", 2, 3)
    service.start().run()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT, u="w")
    service.start().run()
    service.run_after(21_000)
    assert [(each.reason, each.is_possible_duplicate) for each in service.dead] == [(DeadLetterReason.UNDECODABLE, True)] * 2
    assert "waited in unit 'u', and is of unit 'w'" in service.dead[0].error
    assert service.notifications == []


def test_what_waits_is_released_at_its_deadline_although_nothing_comes_for_it(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("u", 2, 3)
    service.start().run()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT)
    service.start().run()
    assert service.notifications == []
    service.run_after(21_000)
    assert service.sequences("u") == [2, 3]


@pytest.mark.parametrize(("kind", "result"), [(OrderKind.HOLD, "held-to-its-end"), (OrderKind.RELEASE, "done")])
def test_a_hold_and_an_order_that_waits_end_as_in_the_format_of_before(in_format: InFormat, kind: OrderKind, result: str) -> None:
    service = in_format(FIRST_FORMAT)
    service.plan = replace(service.plan, has_orders=True, batch_size=1)
    service.tell("u", 2, 3)
    service.start().run()
    service.tell("other", 1, 2, 3)
    (waits,) = [each for key, each in service.report_units().oldest if key.unit == "u"]
    at = service.clock.now()
    seen = {"waits_for": waits.waits_for, "since": waits.since, "for_ms": 10_000}
    service.book.append(P0, Order(id="1", kind=kind, by="anna", because="why", at=at, unit="u", **seen))
    service.cycle.run_once()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT)
    service.start().run()
    service.run_after(31_000)
    assert [each.outcome.result for each in service.book.outcomes([P0], 0)] == [result]
    service.run_after(31_000)  # After a hold its deadline counts again.
    assert service.sequences("u") == [2, 3]


def test_a_log_that_was_made_anew_is_refused_in_any_format(in_format: InFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileTransport, "source", lambda *_: "topic-1 group")
    service = in_format("mapped-1")
    service.tell("u", 2)
    service.start().run()
    service.restart()
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2]
    service.stop()
    monkeypatch.setattr(FileTransport, "source", lambda *_: "topic-2 group")
    with pytest.raises(TransportRefused, match="the storage knows it as topic-1 group, it is topic-2 group now"):
        service.start().run()


class Late:
    """A transport that gets partition 1 assigned after the others."""

    is_late = True

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def assignment(self) -> Sequence[Partition]:
        return [each for each in self._inner.assignment() if each.number == 0 or not Late.is_late]


@pytest.mark.parametrize("changed", [{"events": "mapped-1"}, {"strategy": "STRICT_SEQUENCE"}])
def test_a_partition_that_comes_late_and_has_another_format_or_strategy_is_excluded_and_the_others_continue(
    in_format: InFormat, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("w", 2, partition=1)
    service.start().run()
    service.stop()
    plan = service.plan
    service.plan = replace(plan, **changed)
    service.strategy = strategy_of(service.plan)
    service.around_transport = Late  # type: ignore[assignment]  # It has the rest of the inner one.
    service.tell("u", 1)
    service.start().run()
    service.retry.waits_for_people = True  # As after the first cycle of a worker.
    monkeypatch.setattr(Late, "is_late", False)
    service.tell("u", 2)
    for _ in range(3):
        service.cycle.run_once()
    assert (set(service.cycle.partitions.owned), service.sequences("u")) == ({P0}, [1, 2])
    excluded = service.cycle.partitions.postponed_takeovers.untaken[P1]
    assert excluded.what == "storage"
    assert "onfigure ipf again" in excluded.reason or "run SEQUENCE until nothing waits" in excluded.reason
    assert caplog.text.count(f"{P1} is excluded until an operator acts") == 1
    service.kill()
    with pytest.raises(ConfigurationError):
        service.start().run()  # A service does not start with a configuration that is refused for one of its partitions.
    service.kill()


class Queue:
    """A transport that knows the end of its log only once it reads, and whose last record may come again under a new offset."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._reads = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def standing(self) -> TransportStatus:
        return TransportStatus(window=1)

    def start_offset(self, partition: Partition) -> int:
        return self.end_offset(partition)

    def end_offset(self, partition: Partition) -> int:
        return self._inner.end_offset(partition) if self._reads else 0

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self._reads = True
        self._inner.seek(partition, offset, source_state)


def test_of_a_queue_what_may_come_again_under_new_offsets_is_marked_too(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("u", 2)
    service.start().run()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT)
    service.around_transport = Queue  # type: ignore[assignment]  # It has the rest of the inner one.
    service.tell("u", 1)
    service.tell("u", 3)
    service.start().run()
    assert [(each.sequence, each.is_possible_duplicate) for each in service.notifications] == [(1, True), (2, True), (3, False)]


class Zombie:
    """The transport of a worker that has lost its partition while it was paused."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        raise PublishRefused(f"another worker publishes for {outputs[0].partition}")


def test_a_worker_that_has_lost_the_partition_accepts_no_other_format(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("u", 1)
    service.tell("u", 3)
    service.start().run()
    service.stop()
    service = in_format("mapped-1", FIRST_FORMAT)
    service.around_transport = Zombie  # type: ignore[assignment]  # It has the rest of the inner one.
    service.start().cycle.run_once()
    service.kill()
    service = in_format(FIRST_FORMAT)
    service.around_transport = lambda transport: transport
    service.tell("u", 2)
    service.start().run()
    assert service.sequences("u") == [1, 2, 3]
    assert not any(each.is_possible_duplicate for each in service.notifications)


def test_a_storage_that_ends_with_the_process_has_nothing_of_another_format(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.plan = replace(service.plan, storage="none", acknowledge_handled=True)
    service.tell("u", 1, 3)
    service.start().run()
    service.stop()
    service = in_format("mapped-1")
    service.tell("u", 2)
    service.start().run()
    assert service.sequences("u") == [1, 2, 3]


def test_what_waits_is_read_again_under_a_lost_storage_and_marked_once(in_format: InFormat) -> None:
    service = in_format(FIRST_FORMAT)
    service.tell("u", 1)
    service.start().run()
    service.stop()
    service.forget_database()
    service = in_format("mapped-1")
    service.start().run()
    assert [(each.sequence, each.is_possible_duplicate) for each in service.notifications] == [(1, False), (1, True)]


@pytest.mark.parametrize("source", ["", "topic group", "a queue type = 'x' AND events='y'", "events=x", "events=x topic group"])
@pytest.mark.parametrize(
    ("events", "mapping"), [(FIRST_FORMAT, ""), ("cloudevents", ""), ("mapped-1", "unit=key&id=a"), ("m:C-1?", "")]
)
def test_a_header_keeps_the_log_and_its_format(source: str, events: str, mapping: str) -> None:
    assert source_of(Header("token", 0, source=named_source(source, events, mapping))) == (source, events, mapping)
