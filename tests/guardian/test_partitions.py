"""Ownership of a partition and what it permits: guardian/partitions.py in a whole worker."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import P0, P1, Service
from msgspec.structs import replace

from guardian.ports import Polled, Position, PublishRefused, Transport, TransportRefused, TransportUnavailable
from notification_service.connectors.files.sink import FileTransport
from resequencer.record import Partition
from resequencer.storage_port import PartitionStore, Storage


class Group:
    """A transport in whose group a test decides which calls are refused, the names of the logs, and where they begin."""

    def __init__(self) -> None:
        self.refusals: list[Exception] = []
        self.undecided: set[Partition] = set()
        self.recreated: set[Partition] = set()
        self.source = "topic-id-1/group"
        self.start = 0
        self.has_new_sink = False
        self.polls: list[int] = []

    def around(self, inner: Transport) -> Any:
        group = self

        class Grouped:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def source(self, partition: Partition) -> str:
                return "topic-id-9/group" if partition in group.recreated else group.source

            def start_offset(self, _: Partition) -> int:
                return group.start

            def position(self, partition: Partition) -> Position | None:
                if partition in group.undecided:
                    raise TransportUnavailable("another's transaction is open")
                found = inner.position(partition)
                return replace(found, is_whole=False) if found is not None and group.has_new_sink else found

            def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
                group.polls.append(max_records)
                return inner.poll(max_records, timeout_ms, resting)

            def publish(self, outputs: Any) -> None:
                if group.refusals:
                    raise group.refusals.pop(0)
                inner.publish(outputs)

        return Grouped()


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def service(tmp_path: Path, group: Group) -> Iterator[Service]:
    made = Service(tmp_path)
    made.around_transport = group.around
    yield made
    made.kill()


def test_a_partition_that_cannot_be_taken_over_yet_holds_up_no_other(service: Service, group: Group) -> None:
    service.tell("u", 1)
    service.tell("w", 1, partition=1)
    group.undecided = {P0}
    service.start()
    for _ in range(3):
        service.cycle.run_once()
    assert (set(service.cycle.partitions.owned), service.sequences("w")) == ({P1}, [1])
    assert service.cycle.partitions.postponed_takeovers.untaken[P0].reason == "another's transaction is open"
    group.undecided = set()
    service.run()
    assert (service.sequences("u"), service.cycle.partitions.postponed_takeovers.untaken) == ([1], {})


def test_a_partition_that_goes_away_is_not_tried_again(service: Service, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    service.tell("u", 1)
    group.undecided = {P0}
    service.start().cycle.run_once()
    monkeypatch.setattr(service.servers.transport, "assignment", list, raising=False)
    service.cycle.run_once()
    assert service.cycle.partitions.postponed_takeovers.untaken == {}


def test_what_may_not_leave_stays_pending_and_nothing_is_read_until_it_has_left(service: Service, group: Group) -> None:
    service.put()
    service.start().run()
    service.tell("u", 1)
    group.refusals = [PublishRefused("the group has moved on")] * 3
    service.cycle.run_once()
    service.tell("u", 2)
    group.polls.clear()
    service.cycle.run_once()
    service.cycle.run_once()
    assert (service.notifications, set(group.polls)) == ([], {0})
    assert [each.number for each in service.cycle.partitions.owned[P0].store.pending()] == [1]
    service.run()
    assert service.sequences("u") == [1, 2]
    assert service.cycle.metrics.counts["publications_refused"] == 3


def test_what_may_not_leave_is_missed_no_longer_than_its_partition_is_held(
    service: Service, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.put()
    service.start().run()
    service.tell("u", 1)
    group.refusals = [PublishRefused("the group has moved on")]
    service.cycle.run_once()
    assert service.cycle.refusal == "the group has moved on"
    monkeypatch.setattr(service.servers.transport, "assignment", list, raising=False)
    service.cycle.run_once()
    assert service.cycle.refusal is None


def test_what_may_not_leave_on_the_way_down_leaves_with_the_next_owner(service: Service, group: Group) -> None:
    service.put()
    service.start().run()
    service.tell("u", 1)
    group.refusals = [PublishRefused("the group has moved on")] * 2
    service.cycle.run_once()
    service.stop()
    assert service.notifications == []
    service.start().run()
    assert service.sequences("u") == [1]


def test_a_takeover_whose_publication_is_refused_is_begun_again(service: Service, group: Group) -> None:
    service.tell("u", 1)
    group.refusals = [PublishRefused("the group has moved on")]
    service.start().run()
    assert service.sequences("u") == [1]


def test_what_a_sink_without_a_marker_may_have_is_stored_with_the_mark_before_it_leaves(service: Service, group: Group) -> None:
    """A worker that dies in between leaves the storage and no marker, so the next one does the same again."""
    service.put()
    service.start().run()
    service.tell("u", 1)
    group.refusals = [PublishRefused("the group has moved on")] * 2
    service.cycle.run_once()
    service.kill()
    group.has_new_sink = True
    group.refusals = [PublishRefused("the group has moved on")]
    service.start().cycle.run_once()
    assert (service.notifications, service.cycle.partitions.heals) == ([], 0)
    service.kill()
    service.start().run()
    assert [(each.sequence, each.is_possible_duplicate) for each in service.notifications] == [(1, True)]


def test_a_worker_that_reads_that_a_sink_is_new_while_another_one_publishes_changes_nothing(
    service: Service, group: Group
) -> None:
    """It is paused in front of the storage: it would give output that the other one has published another number and the mark."""
    service.put()
    service.start().run()
    service.tell("u", 1)
    group.refusals = [PublishRefused("the group has moved on")]
    service.cycle.run_once()
    service.kill()

    class Slow:
        def __init__(self, inner: Storage) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def open(self, partition: Partition) -> PartitionStore:
            group.has_new_sink = False
            return self._inner.open(partition)

    group.has_new_sink = True
    service.around_storage = Slow  # type: ignore[assignment]  # It has the rest of the inner one.
    service.start().run()
    assert [(each.number, each.is_possible_duplicate) for each in service.notifications] == [(f"{P0}#1", False)]


def test_a_topic_that_was_made_anew_is_refused_with_what_to_do(service: Service, group: Group) -> None:
    service.tell("u", 2)
    service.start().run()
    service.stop()
    group.source = "topic-id-2/group"
    with pytest.raises(TransportRefused, match=r"topic-id-1/group, it is topic-id-2/group now.*storage\.namespace"):
        service.start().run()


def test_one_that_is_refused_is_set_aside_until_it_is_mended_and_the_others_go_on(
    service: Service, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    service.tell("u", 1)
    service.tell("w", 1, partition=1)
    service.start().run()
    service.stop()
    service.tell("u", 2)
    service.tell("w", 2, partition=1)
    group.recreated = {P0}
    service.start()
    for _ in range(3):
        service.cycle.run_once()
    assert (set(service.cycle.partitions.owned), service.sequences("w")) == ({P1}, [1, 2])
    excluded = service.cycle.partitions.postponed_takeovers.untaken[P0]
    assert excluded.what == "source"
    assert "storage.namespace" in excluded.reason
    assert caplog.text.count("is excluded until an operator acts") == 1
    group.recreated = set()
    service.run()
    assert (service.sequences("u"), service.cycle.partitions.postponed_takeovers.untaken) == ([1, 2], {})


def test_a_service_that_runs_waits_even_if_all_its_partitions_are_refused(service: Service, group: Group) -> None:
    service.tell("u", 1)
    service.start().run()
    service.stop()
    service.tell("u", 2)
    group.source = "topic-id-2/group"
    service.start()
    service.cycle.partitions._tools.retry.waits_for_people = True
    service.cycle.run_once()
    assert service.cycle.partitions.owned == {}
    group.source = "topic-id-1/group"
    service.run()
    assert service.sequences("u") == [1, 2]


def test_a_log_that_was_never_named_takes_the_name_it_gets(service: Service, group: Group) -> None:
    group.source = ""
    service.tell("u", 2)
    service.start().run()
    service.stop()
    group.source = "topic-id-1/group"
    service.start()
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2]
    assert service.cycle.partitions.owned[P0].store.header.source == "topic-id-1/group"


def test_records_that_the_retention_took_unread_end_the_worker_with_their_range(service: Service, group: Group) -> None:
    service.tell("u", 1)
    service.start().run()
    service.stop()
    read_to = service.input_size()
    service.tell("u", 2, 3)
    group.start = service.input_size()
    with pytest.raises(TransportRefused, match=rf"records {read_to} to {group.start - 1} .*reset the group's position"):
        service.start().run()


def test_records_that_are_gone_are_refused_where_the_position_has_expired(
    service: Service, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.tell("u", 1)
    service.start().run()
    service.stop()
    service.tell("u", 2)
    group.start = service.input_size()
    monkeypatch.setattr(FileTransport, "position", lambda *_: None)
    with pytest.raises(TransportRefused, match="were never handled and are gone"):
        service.start().run()


def test_after_a_person_reset_the_position_it_goes_on_behind_what_is_gone(
    service: Service, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    service.tell("u", 1)
    service.start().run()
    service.stop()
    read_to = service.input_size()
    service.tell("u", 2)
    group.start = service.input_size()
    (service.directory / "out" / "positions.json").unlink()
    service.tell("u", 3)
    service.start().run()
    assert f"the records {read_to} to {group.start - 1} were never handled and are gone" in caplog.text
    service.run_after(21_000)
    assert service.sequences("u") == [1, 3]
