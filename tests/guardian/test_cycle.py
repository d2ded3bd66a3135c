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
from guardian.ports import Polled, PublishRefused, TransportUnavailable
from guardian.takeover import Metadata, find_metadata
from guardian.unit_registry import UnitRegistry
from resequencer.errors import OwnershipLost
from resequencer.record import Origin, Partition
from resequencer.storage_port import StorageUnavailable


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
