"""The cycle with failing servers: the order of its calls, and which calls it repeats."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.service_under_test import P0, P1, Service
from harness.watched import Watched, Watcher

import resequencer.turn.decide
from guardian.actor_gateway import ActorsFailed
from guardian.backoff import Stopped
from guardian.guardian_actor import Escalated
from guardian.ports import PartitionOutput, Polled, PublishRefused, TransportRefused, TransportUnavailable
from guardian.region import MustReset
from guardian.takeover import Metadata, find_metadata
from guardian.unit_registry import UnitRegistry
from resequencer.errors import ConfigurationError, OwnershipLost
from resequencer.record import Origin, Partition
from resequencer.storage_port import StorageRefused, StorageUnavailable


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def service(tmp_path: Path, watcher: Watcher) -> Iterator[Service]:
    made = Service(tmp_path)
    made.around_transport = lambda transport: Watched(transport, watcher)
    made.around_storage = lambda storage: Watched(storage, watcher)
    made.put()
    made.start().run()
    watcher.calls.clear()
    yield made
    made.kill()


def test_state_is_committed_before_anything_leaves(service: Service, watcher: Watcher) -> None:
    service.tell("u", 1)
    service.cycle.run_once()
    assert watcher.names("poll", "load", "commit", "publish") == ["poll", "load", "commit", "publish"]


def test_a_poll_of_many_units_is_one_load_one_commit_and_one_publication(service: Service, watcher: Watcher) -> None:
    for unit in range(50):
        service.tell(f"u{unit}", 1)
    service.cycle.run_once()
    assert watcher.names("load", "commit", "publish") == ["load", "commit", "publish"]
    (commit,), ((output,),) = watcher.commits(), watcher.outputs()
    assert (len(commit.changes), len(commit.added), len(output.records)) == (50, 50, 50)


def test_the_position_names_the_commit_that_it_stands_on_and_the_highest_number(service: Service, watcher: Watcher) -> None:
    service.tell("u", 2, 1)
    service.cycle.run_once()
    ((output,),) = watcher.outputs()
    header = service.cycle.partitions.owned[P0].store.header
    assert find_metadata(output.position.metadata) == Metadata(header.token, header.commit, 2)
    assert output.position.offset == service.input_size()


def test_an_empty_poll_commits_and_publishes_nothing(service: Service, watcher: Watcher) -> None:
    assert service.cycle.run_once() is False
    assert watcher.names("commit", "publish", "load") == []


def test_what_is_pending_leaves_the_storage_with_the_next_commit(service: Service, watcher: Watcher) -> None:
    service.tell("u", 1)
    service.run()
    service.tell("u", 2)
    service.run()
    first, second = watcher.commits()
    assert (first.published, second.published) == (0, 1)
    assert [each.number for each in service.cycle.partitions.owned[P0].store.pending()] == [2]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_without_an_answer_is_said_again_in_the_same_words(service: Service, watcher: Watcher, moment: str) -> None:
    getattr(watcher, moment)["commit"] = [StorageUnavailable("away")] * 3
    service.tell("u", 1)
    service.run()
    commits = watcher.commits()
    assert len(commits) == 4
    assert len(set(map(id, commits))) == 1
    assert service.sequences("u") == [1]
    assert service.pauses[:3] == [100, 200, 400]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_load_without_an_answer_is_asked_again(service: Service, watcher: Watcher, moment: str) -> None:
    getattr(watcher, moment)["load"] = [StorageUnavailable("away")] * 2
    service.tell("u", 2, 1)
    service.run()
    assert service.sequences("u") == [1, 2]


def test_an_output_that_is_away_gets_the_same_again_and_nothing_is_read_meanwhile(service: Service, watcher: Watcher) -> None:
    watcher.before["publish"] = [TransportUnavailable("no room")] * 3
    service.tell("u", 1)
    service.cycle.run_once()
    outputs = watcher.outputs()
    assert len(outputs) == 4
    assert all(each == outputs[0] for each in outputs)
    assert watcher.names("poll") == ["poll"]
    assert service.sequences("u") == [1]


def test_a_publication_without_an_answer_doubles_nothing(service: Service, watcher: Watcher) -> None:
    watcher.after["publish"] = [TransportUnavailable("no answer")]
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1]


@pytest.mark.parametrize("call", ["assignment", "poll"])
def test_a_source_that_is_away_is_waited_for(service: Service, watcher: Watcher, call: str) -> None:
    watcher.before[call] = [TransportUnavailable("away")] * 2
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1]
    assert service.retry.unavailable is None


@pytest.mark.parametrize("call", ["open", "waiting", "pending", "position", "end_offset", "seek"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_takeover_that_fails_anywhere_is_begun_again(service: Service, watcher: Watcher, call: str, moment: str) -> None:
    service.tell("u", 2)
    service.run()
    service.kill()
    error = TransportUnavailable("away") if call in ("position", "end_offset", "seek") else StorageUnavailable("away")
    getattr(watcher, moment)[call] = [error]
    service.start()
    service.tell("u", 1)
    service.run()
    assert service.sequences("u") == [1, 2]
    assert service.cycle.partitions.heals == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_was_pending_leaves_once_though_the_takeover_got_no_answer(service: Service, watcher: Watcher, moment: str) -> None:
    watcher.before["publish"] = [RuntimeError("the process ends here")]
    service.tell("u", 1)
    with pytest.raises(RuntimeError):
        service.cycle.run_once()
    service.kill()
    getattr(watcher, moment)["publish"] = [TransportUnavailable("away")]
    service.start().run()
    assert (service.sequences("u"), service.cycle.partitions.heals) == ([1], 0)


def test_told_to_stop_while_the_storage_is_away_it_stops_and_nothing_is_lost(service: Service, watcher: Watcher) -> None:
    watcher.before["commit"] = [StorageUnavailable("away")] * 99
    service.tell("u", 1)
    service.is_stopping = True
    with pytest.raises(Stopped):
        service.cycle.run_once()
    service.kill()
    watcher.before.clear()
    service.is_stopping = False
    service.start().run()
    assert service.sequences("u") == [1]


@pytest.mark.parametrize("call", ["load", "commit"])
def test_a_partition_lost_to_another_owner_is_taken_over_again(service: Service, watcher: Watcher, call: str) -> None:
    service.tell("u", 2)
    service.tell("w", 1, partition=1)
    service.run()
    other_owner = service._new_storage()
    other_owner.open(P0)
    other_owner.close()
    service.tell("v" if call == "load" else "u", 1)
    service.tell("w", 2, partition=1)
    service.run()
    assert service.cycle.partitions.losses == 1
    assert set(service.cycle.partitions.owned) == {P0, P1}
    assert service.sequences("w") == [1, 2]
    assert service.sequences("v") + service.sequences("u") == ([1] if call == "load" else [1, 2])
    service.run_after(21_000)
    assert sorted(each.identity for each in service.notifications if each.unit == "u") == (
        ["u#A#2"] if call == "load" else ["u#A#1", "u#A#2"]
    )


@pytest.mark.parametrize("call", ["waiting", "pending", "commit"])
def test_another_owner_during_a_takeover_does_not_end_the_worker(service: Service, watcher: Watcher, call: str) -> None:
    service.tell("u", 1)
    service.run()
    service.kill()
    if call == "commit":
        service.forget_database()
    watcher.before[call] = [OwnershipLost("another worker opened it")]
    service.start().run()
    assert set(service.cycle.partitions.owned) == {P0}
    assert service.cycle.partitions.losses == 1


def test_an_escalation_commits_and_publishes_nothing(service: Service, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    service.tell("u", 2)
    service.run()
    watcher.calls.clear()
    service.tell("v", 1)
    service.clock.advance(21_000)
    right = resequencer.turn.decide.wake

    def fail(*_: Any) -> None:
        raise ArithmeticError("a bug of ours")

    with monkeypatch.context() as patch:
        patch.setattr(resequencer.turn.decide, "wake", fail)
        with pytest.raises(Escalated):
            service.cycle.run_once()
    assert watcher.names("commit", "publish") == []
    assert resequencer.turn.decide.wake is right
    service.kill()
    service.start().run()
    assert (service.sequences("u"), service.sequences("v")) == ([2], [1])


def test_a_registry_that_fails_commits_nothing(service: Service, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ArithmeticError("a bug of the registry")

    service.tell("u", 1)
    with monkeypatch.context() as patch:
        patch.setattr(UnitRegistry, "note", fail)
        with pytest.raises(ActorsFailed):
            service.cycle.run_once()
    assert watcher.names("commit", "publish") == []
    service.kill()
    service.start().run()
    assert service.sequences("u") == [1]


def test_a_record_has_left_when_all_has_that_was_committed_with_a_position_beyond_it(service: Service, watcher: Watcher) -> None:
    partitions = service.cycle.partitions
    service.tell("u", 1)
    first = Origin(P0, 0)
    assert not partitions.is_published(first)
    watcher.before["publish"] = [PublishRefused("the group has moved on")]
    service.cycle.run_once()
    assert not partitions.is_published(first), "it is committed, and may not leave yet"
    service.cycle.run_once()
    assert partitions.is_published(first)
    second = Origin(P0, service.input_size())
    service.clock.advance(1)
    service.tell("v", 5)
    service.cycle.run_once()
    assert not partitions.is_published(second), "its position is not due yet"
    service.clock.advance(1_000)
    service.cycle.run_once()
    assert partitions.is_published(second)
    assert not partitions.is_published(Origin(P1, 0)), "that is not ours"


def test_a_position_is_published_once_a_second_while_nothing_leaves(service: Service, watcher: Watcher) -> None:
    for sequence in (5, 6, 7):
        service.tell("u", sequence)
        service.run_after(300)
    assert watcher.names("commit", "publish") == ["commit", "commit", "commit"]
    service.tell("u", 8)
    service.run_after(700)
    assert service.stored_positions == {0: service.input_size()}


@pytest.mark.parametrize(("every_ms", "published"), [(0, 3), (600, 1), (5_000, 0)])
def test_a_position_that_moves_without_output_is_published_every_acknowledge_every(
    tmp_path: Path, watcher: Watcher, every_ms: int, published: int
) -> None:
    service = Service(tmp_path, acknowledge_every_ms=every_ms)
    service.around_transport = lambda transport: Watched(transport, watcher)
    service.put()
    service.start().run()
    watcher.calls.clear()
    for sequence in (5, 6, 7):
        service.tell("u", sequence)
        service.run_after(300)
    assert watcher.names("publish") == ["publish"] * published
    service.tell("v", 1)
    service.run()
    assert service.stored_positions == {0: service.input_size()}, "with output it is published at once"
    service.kill()


def test_a_position_that_was_not_due_is_published_though_nothing_more_comes(service: Service, watcher: Watcher) -> None:
    service.tell("u", 5)
    service.run_after(300)
    assert watcher.names("publish") == []
    service.run_after(1_000)
    assert service.stored_positions == {0: service.input_size()}


def test_the_last_position_is_published_on_the_way_down(service: Service, watcher: Watcher) -> None:
    service.tell("u", 5)
    service.run_after(1)
    service.stop()
    assert service.stored_positions == {0: service.input_size()}


def failed(service: Service, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception) -> list[PartitionOutput]:
    """Let the next cycle fail in a call of the actors, and return what the worker may publish as its last."""

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(service.servers.actors, where, fail)
        with pytest.raises(type(error)):
            service.cycle.run_once()
    return list(service.cycle.last_positions(error))


@pytest.mark.parametrize("where", ["prepare", "decide"])
@pytest.mark.parametrize("error", [ActorsFailed("a bug of the registry"), ArithmeticError("a bug of ours")])
def test_a_worker_that_fails_publishes_positions_of_what_it_had_committed(
    service: Service, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    service.tell("u", 5)
    service.run_after(1)
    committed, commit = service.input_size(), service.cycle.partitions.owned[P0].store.header.commit
    service.tell("v", 1)
    (last,) = failed(service, monkeypatch, where, error)
    metadata = find_metadata(last.position.metadata)
    assert metadata is not None
    assert (last.records, last.position.offset, metadata.commit) == ((), committed, commit)
    service.servers.transport.publish([last])
    assert service.stored_positions == {0: committed}
    service.kill()
    service.start().run()
    assert service.sequences("v") == [1]


def test_a_worker_that_fails_publishes_no_position_that_stands(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.tell("u", 1)
    service.run()
    assert failed(service, monkeypatch, "decide", ArithmeticError("a bug of ours")) == []


@pytest.mark.parametrize(
    "error",
    [
        TransportRefused("IPF_PROCESSING_DATA-0", "it is another topic now"),
        StorageRefused("state.db", "damaged"),
        MustReset("turns took too long"),
        ConfigurationError("strategy", "another one"),
        Stopped("stopped while the output was unavailable"),
    ],
)
def test_a_worker_that_is_refused_publishes_nothing_more(
    service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    service.tell("u", 5)
    service.run_after(1)
    assert failed(service, monkeypatch, "decide", error) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_that_fails_in_a_publication_publishes_nothing_more(service: Service, watcher: Watcher, moment: str) -> None:
    """Its outcome is not known: that of a publication of positions alone, too."""
    mistake = ArithmeticError("a bug of ours")
    service.tell("u", 5)
    service.run_after(1)
    getattr(watcher, moment)["publish"] = [mistake]
    service.clock.advance(1_000)
    with pytest.raises(ArithmeticError):
        service.cycle.run_once()
    assert service.cycle.partitions.owned[P0].positions.has_moved()
    assert list(service.cycle.last_positions(mistake)) == []


def test_a_worker_that_fails_in_a_takeover_publishes_nothing_more(service: Service, watcher: Watcher) -> None:
    mistake = ArithmeticError("a bug of ours")
    service.tell("u", 5)
    service.run_after(1)
    service.put(partition=1)
    watcher.before["publish"] = [mistake]
    with pytest.raises(ArithmeticError):
        service.cycle.run_once()
    assert list(service.cycle.last_positions(mistake)) == []


def test_a_worker_that_fails_after_a_refused_publication_publishes_nothing_more(
    service: Service, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.put(partition=1)
    service.run()
    service.tell("u", 5)
    service.run_after(1)
    service.tell("v", 1, partition=1)
    watcher.before["publish"] = [PublishRefused("the group has moved on")]
    service.cycle.run_once()
    (service.directory / "in" / "partition-1.jsonl").unlink()
    assert failed(service, monkeypatch, "decide", ArithmeticError("a bug of ours")) == []


def test_output_of_a_commit_that_failed_is_not_published_nor_its_position(service: Service, watcher: Watcher) -> None:
    mistake = ArithmeticError("a bug of ours")
    service.put(partition=1)
    service.run()
    service.tell("u", 5)
    service.tell("u1", 5, partition=1)
    service.run_after(1)
    committed = service.input_size(1)
    service.tell("v", 1)
    watcher.before["commit"] = [mistake]
    with pytest.raises(ArithmeticError):
        service.cycle.run_once()
    (last,) = service.cycle.last_positions(mistake)
    assert (last.partition, last.records, last.position.offset) == (P1, (), committed)


def test_a_partition_that_was_lost_has_no_last_position(
    service: Service, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.tell("u", 5)
    service.run_after(1)
    service.tell("v", 1)
    watcher.before["load"] = [OwnershipLost("another worker")]
    assert failed(service, monkeypatch, "decide", ArithmeticError("a bug of ours")) == []


def test_records_of_a_partition_that_is_not_held_yet_are_left_alone(
    service: Service, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that came back between the assignment and the poll is still read from its old place."""
    service.tell("u", 1)
    transport = service.servers.transport
    right: Callable[[], list[Partition]] = transport.assignment
    monkeypatch.setattr(type(transport), "assignment", lambda _: [], raising=False)
    service.cycle.run_once()
    assert (service.notifications, service.cycle.partitions.owned) == ([], {})
    monkeypatch.undo()
    assert right() == [P0]
    service.run()
    assert service.sequences("u") == [1]


def test_a_poll_asks_for_no_more_than_a_batch(tmp_path: Path, watcher: Watcher) -> None:
    service = Service(tmp_path, batch_size=3)
    service.around_transport = lambda transport: Watched(transport, watcher)
    service.tell("u", *range(10, 0, -1))
    service.start().run()
    assert service.sequences("u") == list(range(1, 11))
    polls = [arguments for name, arguments in watcher.calls if name == "poll"]
    assert {most for most, *_ in polls} == {3}
    service.kill()


def test_a_poll_waits_no_longer_than_until_a_unit_is_to_be_woken(tmp_path: Path, watcher: Watcher) -> None:
    service = Service(tmp_path)
    service.around_transport = lambda transport: Watched(transport, watcher)
    service.start()
    service.cycle._settings = type(service.cycle._settings)("SEQUENCE", 500, 500)
    service.tell("u", 2)
    service.cycle.run_once()
    service.clock.advance(20_900)
    service.cycle.run_once()
    service.clock.advance(100)
    service.cycle.run_once()
    assert [arguments[1] for name, arguments in watcher.calls if name == "poll"] == [500, 100, 0]
    assert isinstance(service.servers.transport.poll(1, 0), Polled)
    service.kill()
