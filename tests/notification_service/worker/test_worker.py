"""A worker's run in one process: its states, its reports, its periodic work, and its end."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, current_thread, main_thread

import msgspec
import pytest
from harness.processes.operated_service import envelope_line

from guardian.actor_gateway import ActorsFailed
from guardian.metrics import CycleTimes
from guardian.ports import PublishRefused, TransportRefused, TransportStatus, TransportUnavailable
from notification_service.configuration.configuration import Configuration
from notification_service.connectors.line_format import Line, decode_line
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State, StatusReport, UntakenPartition
from notification_service.supervision.in_flight_memory import InFlightEnvelope, identity_of
from notification_service.supervision.suspects import Suspects
from notification_service.worker import worker
from notification_service.worker.worker import Worker
from resequencer.clock import instant_of, instant_text
from resequencer.errors import DependencyUnavailable
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition, Record
from resequencer.storage_port import StorageUnavailable

NOW = 1_774_740_835_941


class Operator:
    """Starts a worker, stops it after so many questions whether to stop, and records its reports."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.now = NOW
        self.reports: list[StatusReport] = []
        self.waited: list[int] = []
        self.until: Callable[[], bool] = lambda: False
        self.questions = 0
        self.committed = 0
        self.worker = self.make()

    def make(self) -> Worker:
        identity = Identity(os.getpid(), str(self.configuration.file), NOW)
        return Worker(self.configuration, self.wait, self.is_stopping, identity)

    def wait(self, milliseconds: int, _: object = None) -> None:
        self.waited.append(milliseconds)
        self.now += milliseconds

    def is_stopping(self) -> bool:
        self.questions += 1
        assert self.questions < 1_000, "it does not come to an end"
        return self.until()

    @property
    def states(self) -> list[State]:
        """The reported states, each once, in order."""
        return list(dict.fromkeys(each.state for each in self.reports))

    @property
    def parts(self):
        return self.worker._get_parts()

    def append(self, *lines: bytes) -> None:
        directory = self.configuration.ingress.file_directory
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "partition-0.jsonl").open("ab") as file:
            file.writelines(line + b"\n" for line in lines)


@pytest.fixture
def operator(loaded, tmp_path: Path, monkeypatch) -> Iterator[Operator]:
    """An operator of a worker on files and the embedded storage; waiting moves the clock."""
    configuration = loaded(
        f"""ipf.processing-data.ingress.transport = file
        payment-status-notification {{ transport = file, run-directory = "{tmp_path}/run"
          resequencer {{ storage-type = embedded, strategy = SEQUENCE }} }}"""
    )
    reports: list[StatusReport] = []
    write = StatusFile.write

    def note(file: StatusFile, report: StatusReport) -> None:
        reports.append(report)
        write(file, report)

    monkeypatch.setattr(StatusFile, "write", note)
    (tmp_path / "run").mkdir()
    made: list[Operator] = []
    monkeypatch.setattr(worker.SystemClock, "now", lambda _: made[0].now if made else NOW)
    made.append(Operator(configuration))
    made[0].reports = reports
    return made[0]


def test_a_life_is_starting_ready_draining_stopped(operator):
    operator.until = lambda: operator.questions > 3
    operator.worker.run()
    assert operator.states == [State.STARTING, State.READY, State.DRAINING, State.STOPPED]
    assert operator.reports[-1].reason is None


def test_it_is_not_ready_before_its_first_cycle_is_through(operator):
    operator.append(*(envelope_line("uow-1", sequence) for sequence in (2, 1)))
    operator.until = lambda: operator.questions > 4
    operator.worker.run()
    ready = next(each for each in operator.reports if each.state == State.READY)
    assert ready.counts["handled"] == 2
    assert ready.notifications == {"RCVD": 1, "ACTC": 1}
    assert not any(each.counts for each in operator.reports if each.state == State.STARTING)


def test_told_to_stop_before_it_began_it_drains_and_stops(operator):
    operator.until = lambda: True
    operator.worker.run()
    assert operator.states == [State.STARTING, State.DRAINING, State.STOPPED]


def test_it_reports_twice_a_second_while_nothing_happens(operator):
    operator.until = lambda: operator.now >= NOW + 5_000
    operator.worker.run()
    reported = [each for each in operator.reports if each.state == State.READY]
    assert 9 <= len(reported) <= 12


def test_a_clock_that_was_set_back_stops_no_reports(operator):
    operator.append(envelope_line("uow-1", 1))
    operator.until = lambda: operator.questions > 10
    set_back = iter([3_600_000] + [0] * 1_000)

    def wait(milliseconds: int, _: object) -> None:
        operator.now += milliseconds - next(set_back)

    operator.worker._sleep = wait
    operator.worker.run()
    ready = [each for each in operator.reports if each.state == State.READY]
    assert len(ready) >= 3
    assert ready[-1].reported_at < ready[0].reported_at


@pytest.mark.parametrize(
    ("away", "state"),
    [("publish", State.OUTPUT_UNAVAILABLE), ("poll", State.SOURCE_UNAVAILABLE)],
)
def test_while_something_is_away_it_says_so_and_why_and_then_goes_on(operator, monkeypatch, away, state):
    operator.append(envelope_line("uow-1", 1))
    transport = operator.parts.servers.transport
    answer = getattr(transport, away)
    failures = iter(range(8))

    def fail(*arguments):
        if operator.parts.cycle.partitions.owned and next(failures, None) is not None:
            raise TransportUnavailable("the disk is full")
        return answer(*arguments)

    monkeypatch.setattr(transport, away, fail)
    operator.until = lambda: operator.reports[-1].state == State.READY and operator.reports[-1].counts.get("handled") == 1
    operator.worker.run()
    found = [each for each in operator.reports if each.state == state]
    assert found
    assert {each.reason for each in found} == {"the disk is full"}
    assert operator.states[-3:] == [State.READY, State.DRAINING, State.STOPPED]
    assert operator.reports[-1].reason is None


def test_told_to_stop_while_the_output_is_away_it_stops_and_says_what_it_left(operator, monkeypatch, caplog):
    operator.append(envelope_line("uow-1", 1))
    transport = operator.parts.servers.transport
    answer = transport.publish

    def fail(outputs):
        if operator.parts.cycle.partitions.owned:
            raise TransportUnavailable("the disk is full")
        answer(outputs)

    monkeypatch.setattr(transport, "publish", fail)
    operator.until = lambda: operator.parts.retry.unavailable == "output"
    operator.worker.run()
    assert operator.reports[-1].state == State.STOPPED
    assert operator.reports[-1].reason == "the disk is full"
    assert "stopped while the output was unavailable: the disk is full" in caplog.text


def test_what_it_ends_with_is_raised_and_reported_and_everything_is_let_go(operator, monkeypatch):
    closed = []
    for each in operator.parts.servers:
        monkeypatch.setattr(each, "close", lambda close=each.close: closed.append(close()))

    def refuse(*_):
        raise TransportRefused("partition-0.jsonl", "was cut")

    monkeypatch.setattr(operator.parts.servers.transport, "poll", refuse)
    with pytest.raises(TransportRefused):
        operator.worker.run()
    assert operator.states == [State.STARTING, State.STOPPED]
    assert operator.reports[-1].reason == "partition-0.jsonl: was cut"
    assert len(closed) == 4


def test_a_guardian_that_failed_has_no_figures_but_the_reason_is_reported_and_everything_let_go(operator, monkeypatch):
    closed = []
    for each in operator.parts.servers:
        monkeypatch.setattr(each, "close", lambda close=each.close: closed.append(close()))

    def fail(*_):
        raise ActorsFailed("the guardian raised")

    monkeypatch.setattr(operator.parts.servers.actors, "prepare", fail)
    monkeypatch.setattr(operator.parts.servers.actors, "report_units", fail)
    with pytest.raises(ActorsFailed):
        operator.worker.run()
    assert (operator.reports[-1].state, operator.reports[-1].reason) == (State.STOPPED, "the guardian raised")
    assert len(closed) == 4


def test_idle_units_are_forgotten_now_and_then_and_at_once_where_there_are_many(operator, monkeypatch):
    asked = []
    going = iter([1_000, 1_000, 99] + [0] * 100)

    def expire():
        asked.append(operator.now - NOW)
        return next(going)

    monkeypatch.setattr(operator.parts.cycle, "expire", expire)
    operator.until = lambda: operator.now >= NOW + 25_000
    operator.worker.run()
    assert asked == [500, 1_000, 1_500, 11_500, 21_500]


def test_the_report_names_the_oldest_waits_and_how_far_each_partition_was_read(operator):
    operator.append(envelope_line("uow-2", 5), envelope_line("uow-1", 3), b"garbage")
    operator.until = lambda: operator.questions > 3
    operator.worker.run()
    last = operator.reports[-1]
    assert [(each.unit, each.waits_for, each.stashed) for each in last.oldest_waits] == [
        ("uow-2", "sequence:1", 1),
        ("uow-1", "sequence:1", 1),
    ]
    assert (last.units.waiting, last.units.stashed_envelopes) == (2, 2)
    size = (operator.configuration.ingress.file_directory / "partition-0.jsonl").stat().st_size
    assert [(each.read_to, each.acknowledged, each.unpublished, each.held_by) for each in last.partitions] == [
        (size, size, 0, None)
    ]
    assert last.dead_letters == {"undecodable": 1}
    assert last.counts["overruns"] == last.counts["ownership_lost"] == last.counts["heals"] == 0


def test_the_report_names_the_servers_for_which_most_units_wait(operator, monkeypatch):
    def handle(self, envelope, data, marks, now):
        raise DependencyUnavailable(f"server-{min(int(envelope.unit), 11)}")

    monkeypatch.setattr("notification_service.wiring.composition.EnrichedHandler.handle", handle)
    operator.append(*(envelope_line(str(number), 1) for number in range(15)))
    operator.until = lambda: operator.questions > 3
    operator.worker.run()
    unavailable = operator.reports[-1].unavailable
    assert len(unavailable) == 10
    assert unavailable["server-11"] == 4
    assert operator.reports[-1].state == State.STOPPED
    assert State.READY in operator.states, "all else goes on"


def test_it_says_ready_once_and_again_when_it_is_so_again(operator, monkeypatch, caplog):
    caplog.set_level("INFO")
    transport = operator.parts.servers.transport
    answer = transport.poll

    def poll(*arguments):
        if 1_000 <= operator.now - NOW < 5_000:
            raise TransportUnavailable("no route")
        return answer(*arguments)

    monkeypatch.setattr(transport, "poll", poll)
    operator.until = lambda: operator.now >= NOW + 10_000
    operator.worker.run()
    found = [each.getMessage() for each in caplog.records if "read" in each.getMessage() or "the source" in each.getMessage()]
    unavailable = "the source is unavailable, retrying until it answers: no route"
    assert found == ["ready", unavailable, "the source answers again", "ready"]


def test_it_is_not_ready_before_its_group_has_said_what_is_its_own(operator, monkeypatch):
    joined_at = NOW + 2_000
    transport = operator.parts.servers.transport
    monkeypatch.setattr(transport, "standing", lambda: TransportStatus(has_joined=operator.now >= joined_at))
    operator.until = lambda: operator.now >= NOW + 5_000
    operator.worker.run()
    assert operator.states == [State.STARTING, State.READY, State.DRAINING, State.STOPPED]
    ready = next(each for each in operator.reports if each.state == State.READY)
    assert instant_of(ready.reported_at) > joined_at, "a cycle that knew what is ours is through"
    waiting = [each for each in operator.reports[1:] if instant_of(each.reported_at) < joined_at]
    assert {each.reason for each in waiting} == {"waiting for Kafka to assign partitions"}


def test_while_nothing_may_leave_it_is_not_ready_and_says_why(operator, monkeypatch):
    operator.append(envelope_line("uow-1", 1))
    transport = operator.parts.servers.transport
    answer, poll = transport.publish, transport.poll

    def publish(outputs):
        if operator.parts.cycle.partitions.owned and operator.now < NOW + 2_000:
            raise PublishRefused("not ours at the moment: T-0")
        return answer(outputs)

    def rejoin(most, milliseconds, resting=()):
        operator.now += milliseconds
        return poll(most, 0 if most == 0 else milliseconds, resting)

    monkeypatch.setattr(transport, "publish", publish)
    monkeypatch.setattr(transport, "poll", rejoin)
    operator.until = lambda: operator.now >= NOW + 4_000
    operator.worker.run()
    refused = [each for each in operator.reports if each.state == State.OUTPUT_UNAVAILABLE]
    assert {each.reason for each in refused} == {"not ours at the moment: T-0"}
    assert operator.states[-3:] == [State.READY, State.DRAINING, State.STOPPED]


def test_the_report_tells_the_lag_what_is_put_off_the_last_cycles_times_and_notes(operator, monkeypatch):
    operator.append(*(envelope_line("uow-1", each) for each in (1, 2, 3)))
    parts, transport = operator.parts, operator.parts.servers.transport
    answer = transport.poll
    partition = Partition("T", 7)
    parts.cycle.partitions.postponed_takeovers.postpone(partition, "storage", "no answer", NOW)

    def poll(most, milliseconds, resting):
        operator.now += 30
        return answer(min(most, 2), milliseconds, resting)

    monkeypatch.setattr(transport, "poll", poll)
    monkeypatch.setattr(transport, "standing", lambda: TransportStatus(notes=("the topic has grown",)))
    monkeypatch.setattr(parts.cycle.partitions.postponed_takeovers, "forget", lambda _: None)
    operator.until = lambda: bool(operator.reports[-1].last_cycle)
    operator.worker.run()
    last = operator.reports[-1]
    size = (operator.configuration.ingress.file_directory / "partition-0.jsonl").stat().st_size
    assert [(each.slot, each.lag) for each in last.partitions] == [(0, size - last.partitions[0].read_to)]
    assert 0 < last.partitions[0].lag < size
    assert last.untaken == (UntakenPartition("T-7", "storage", "no answer", instant_text(NOW + 100)),)
    assert last.last_cycle == CycleTimes(2, 30, 0, 0, 0)
    assert last.notes == ("the topic has grown",)


def test_what_a_transaction_holds_back_counts_as_lag_and_no_deadline_waits_for_it(operator, monkeypatch):
    operator.append(envelope_line("uow-1", 2))
    transport = operator.parts.servers.transport
    answer = transport.poll

    def poll(most, milliseconds, resting):
        polled = answer(most, milliseconds, resting)
        return msgspec.structs.replace(polled, log_ends={each: end + 700 for each, end in polled.ends.items()})

    monkeypatch.setattr(transport, "poll", poll)
    operator.until = lambda: operator.now >= NOW + 60_000
    operator.worker.run()
    ready = [each for each in operator.reports if each.state == State.READY and each.partitions]
    assert {each.lag for each in ready[-1].partitions} == {700}
    assert ready[-1].counts["released_units"] == 1


def test_while_the_storage_is_away_the_lag_is_not_known_and_what_may_be_unread_gets_older(operator, monkeypatch):
    """The worker reads nothing then, and does not see that the log grows."""
    storage, batches = operator.parts.servers.storage, [range(1, 3), range(3, 50)]

    def commit(call):
        if NOW + 2_000 <= operator.now < NOW + 62_000:
            raise StorageUnavailable("no route")
        return call()

    def until() -> bool:
        if batches and operator.now >= NOW + (2_000, 10_000)[-len(batches)]:
            operator.append(*(envelope_line(f"uow-{each}", 1) for each in batches.pop(0)))
        return operator.now >= NOW + 70_000

    monkeypatch.setattr(storage, "side_by_side", lambda calls: [partial(commit, each) for each in calls])
    operator.until = until
    operator.worker.run()
    away = [each for each in operator.reports if each.state == State.STORAGE_UNAVAILABLE]
    assert {(part.lag, part.lag_to_stable_end) for each in away for part in each.partitions} == {(None, None)}
    assert 55_000 < away[-1].partitions[0].lag_ms < 65_000
    ready = [each for each in operator.reports if each.state == State.READY]
    assert {(part.lag, part.lag_ms) for part in (*ready[0].partitions, *ready[-1].partitions)} == {(0, 0)}


def test_in_a_cycle_that_takes_long_the_lag_is_not_known(operator, monkeypatch):
    operator.append(envelope_line("uow-1", 1))
    cycle = operator.parts.cycle
    operator.until = lambda: bool(cycle.metrics.counts["handled"])
    operator.worker.run()
    assert [cycle.knows_ends(operator.now + passed) for passed in (0, 5_000, 5_001, -1_000)] == [True, True, False, False]


def suspected(operator, line: bytes, offset: int, *, exits: int) -> Suspects:
    """Record earlier workers as having died of the envelope in this line."""
    decoded = decode_line(line)
    assert isinstance(decoded, Line)
    origin = Origin(Partition("IPF_PROCESSING_DATA", 0), offset)
    envelope = operator.parts.cycle._tools.decoder.decode(Record(origin, decoded.value, decoded.key, decoded.headers))
    suspects = Suspects(operator.configuration.notification.run_directory)
    for _ in range(exits):
        suspects.count(
            InFlightEnvelope(1, origin, envelope.unit, CallKind.HANDLING, identity_of(envelope)), "was killed by SIGSEGV"
        )
    return suspects


def test_what_ended_three_workers_is_set_aside_its_unit_goes_on_and_then_it_is_forgotten(operator):
    lines = [envelope_line("uow-1", each) for each in (1, 2, 3)]
    operator.append(*lines)
    suspects = suspected(operator, lines[1], len(lines[0]) + 1, exits=3)
    operator.until = lambda: operator.questions > 4
    operator.worker.run()
    assert operator.reports[-1].dead_letters == {"ended-its-worker": 1}
    assert operator.reports[-1].notifications == {"RCVD": 1, "ACCP": 1}
    assert suspects.find_all() == {}


def test_what_ended_two_workers_is_handled_and_then_forgotten(operator):
    line = envelope_line("uow-1", 1)
    operator.append(line)
    suspects = suspected(operator, line, 0, exits=2)
    operator.until = lambda: operator.questions > 4
    operator.worker.run()
    assert operator.reports[-1].notifications == {"RCVD": 1}
    assert suspects.find_all() == {}


def test_what_is_read_again_after_a_restart_is_not_forgotten_before_its_position_has_passed_it(operator, loaded):
    """With storage none, a dead-lettered record is handled again if an older record holds the position back."""
    operator.configuration = loaded(
        f"""ipf.processing-data.ingress.transport = file
        payment-status-notification {{ transport = file, run-directory = "{operator.configuration.notification.run_directory}"
          resequencer {{ storage-type = none, strategy = SEQUENCE, stash-timeout = 10s, idle-timeout = 3s }} }}"""
    )
    operator.worker = operator.make()
    waiting, line = envelope_line("uow-0", 2), envelope_line("uow-1", 1)
    operator.append(waiting, line)
    suspects = suspected(operator, line, len(waiting) + 1, exits=3)
    operator.until = lambda: operator.reports[-1].dead_letters == {"ended-its-worker": 1}
    operator.worker.run()
    assert [each.exits for each in suspects.find_all().values()] == [3]
    operator.worker, operator.questions = operator.make(), 0
    operator.until = lambda: operator.questions > 100 or not suspects.find_all()
    operator.worker.run()
    assert operator.now - NOW > 10_000
    assert suspects.find_all() == {}
    letters = operator.configuration.notification.output_directory / "dead-letters.jsonl"
    assert letters.read_bytes().count(b"\n") == 1


@pytest.fixture
def failing(operator, monkeypatch) -> Operator:
    """An operator of a worker that fails in its third cycle, with a stashed envelope whose position is not published yet."""
    first = envelope_line("uow-1", 5)
    operator.append(first)
    actors, committed = operator.parts.servers.actors, len(first) + 1
    decide, calls = actors.decide, count(1)

    def fail_at_last(*arguments):
        call = next(calls)
        if call == 2:
            operator.append(envelope_line("uow-2", 1))
        if call < 3:
            return decide(*arguments)
        assert find_position(operator) < committed
        raise ArithmeticError("a bug of ours")

    monkeypatch.setattr(actors, "decide", fail_at_last)
    operator.committed = committed
    return operator


def find_position(operator: Operator) -> int:
    (position,) = json.loads((operator.configuration.notification.output_directory / "positions.json").read_bytes())["partitions"]
    return int(position["offset"])


def test_a_worker_that_fails_publishes_the_last_positions_of_what_it_had_committed(failing, caplog):
    caplog.set_level("INFO")
    with pytest.raises(ArithmeticError, match="a bug of ours"):
        failing.worker.run()
    assert find_position(failing) == failing.committed
    assert failing.reports[-1].reason == "a bug of ours"
    assert "published the last positions of committed work" in caplog.messages


def test_a_last_publication_that_fails_hides_no_error(failing, monkeypatch, caplog):
    transport = failing.parts.servers.transport
    publish = transport.publish

    def refuse(outputs):
        if any(each.position.offset for each in outputs):
            raise TransportRefused("positions.json", "damaged")
        publish(outputs)

    monkeypatch.setattr(transport, "publish", refuse)
    with pytest.raises(ArithmeticError, match="a bug of ours"):
        failing.worker.run()
    assert "the last positions were not published: positions.json: damaged" in caplog.messages
    assert failing.reports[-1].state == State.STOPPED


def test_a_last_publication_that_hangs_does_not_hold_the_worker_back(failing, monkeypatch, caplog):
    transport, is_over, closed = failing.parts.servers.transport, Event(), []
    publish = transport.publish

    def hang(outputs):
        if current_thread() is not main_thread():
            is_over.wait()
        publish(outputs)

    monkeypatch.setattr(transport, "publish", hang)
    monkeypatch.setattr(transport, "close", lambda: closed.append("transport"))
    monkeypatch.setattr(failing.parts.servers.storage, "close", lambda: closed.append("storage"))
    with pytest.raises(ArithmeticError, match="a bug of ours"):
        failing.worker.run()
    assert "the last positions were not published within 1 s" in caplog.messages
    assert closed == ["storage"], "a transport in use is not closed: it ends with the process"
    is_over.set()
