"""A campaign on the payments of messages: workers and aggregation workers are struck while a service counts."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, NamedTuple, Protocol

from harness.fault_table import GroupRow
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.simulated_stores.recomputed import Recomputed, Told, Value, read_report
from harness.waiting import pause_at_random, wait_until
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from simulation.fakes.broker import Stored

from notification_service.aggregation.files import ValuesFile
from notification_service.connectors.line_format import Line, decode_line
from notification_service.status.service_report import find_reports
from tests.faults.feeder import Feeder
from tests.faults.stage import LONGEST_WAIT_SECONDS, PARTITIONS, SESSION_SECONDS, Stage
from tests.faults.strikes import send
from tests.notification_service.connectors.kafka.stage import read_to_end

_AGGREGATION = f"{NOTIFICATION}.aggregation"
_VERB = "groups"
_QUIET = ("--losses", "0", "--late", "0", "--garbage", "0.5%", "--conflicts", "0.2%")


class Fact(NamedTuple):
    """A fact with its place."""

    partition: int
    offset: int
    record: Stored


class GroupStage(Protocol):
    """A service that counts. `aggregation_workers` run beside it."""

    transport: str
    aggregation_workers: int
    daemon: Daemon
    chance: Random

    @property
    def service(self) -> OperatedService: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def verb(self, *arguments: str, seconds: float) -> Any: ...

    def ends(self) -> dict[str, int]: ...

    def has_read(self, ends: dict[str, int]) -> bool: ...

    def is_idle(self, ends: dict[str, int]) -> bool:
        """Whether everything up to `ends` was read and has left, and nothing waits."""
        ...

    def has_counted_all(self) -> bool:
        """Whether all facts that are there were counted."""
        ...

    def facts(self) -> list[Fact]: ...

    def reports(self) -> list[Stored]: ...

    def values(self) -> dict[str, Value]: ...


class TopicStage(Stage):
    """On topics of a broker, with two workers and two aggregation workers."""

    transport = "kafka"
    aggregation_workers = 2

    def has_counted_all(self) -> bool:
        names = [TopicPartition(self._facts, number) for number in range(PARTITIONS)]

        def ask(reader: KafkaConsumer) -> bool:
            ends = reader.end_offsets(names, timeout_ms=5_000)
            positions = {each: reader.committed(each, timeout_ms=5_000) or 0 for each in names}
            return all(positions[each] >= ends[each] for each in names)

        with suppress(KafkaError), closing(self._reader(f"{self._name}-payments")) as reader:
            return ask(reader)
        return False

    def facts(self) -> list[Fact]:
        return [Fact(each.partition, each.offset, _stored(each)) for each in self._records(self._facts)]

    def reports(self) -> list[Stored]:
        return [_stored(each) for each in self._records(self._reports)]

    def values(self) -> dict[str, Value]:
        last = {each.key.decode(): each.value for each in self._records(f"{self._name}-values")}
        return {key: (value, None) for key, value in last.items() if value}

    @property
    def _facts(self) -> str:
        return f"{self._name}-facts"

    @property
    def _reports(self) -> str:
        return f"{self._name}-reports"

    def _records(self, topic: str) -> list[Any]:
        found: list[Any] = self._ask(lambda reader: read_to_end(reader, topic))
        return found

    def _reader(self, group: str) -> KafkaConsumer:
        options = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": group}
        return KafkaConsumer(bootstrap_servers=self.broker.bootstrap, proxy_url="direct://", **options)

    def _start_servers(self) -> None:
        super()._start_servers()
        self.broker.create_topics(self._facts, self._reports, f"{self._name}-group-dead", partitions=PARTITIONS)

    def _all_overrides(self) -> list[str]:
        return [
            *super()._all_overrides(),
            f"{_AGGREGATION}.enabled=true",
            f"{_AGGREGATION}.worker.count={self.aggregation_workers}",
            f"{_AGGREGATION}.facts.topic={self._facts}",
            f"{_AGGREGATION}.reports.topic={self._reports}",
            f"{_AGGREGATION}.values.topic={self._name}-values",
            f"{_AGGREGATION}.dead-letters.topic={self._name}-group-dead",
        ]


class FileStage:
    """On files, with one worker and one aggregation worker."""

    transport = "file"
    aggregation_workers = 1

    def __init__(self, directory: Path, chance: Random) -> None:
        self.chance = chance
        overrides = (f"{_AGGREGATION}.enabled=true", f"{NOTIFICATION}.resequencer.strategy=SEQUENCE")
        self.daemon = Daemon(OperatedService(directory / "first", *overrides))

    @property
    def service(self) -> OperatedService:
        return self.daemon.service

    def start(self) -> None:
        self.daemon.start()

    def close(self) -> None:
        self.service.verb("stop", seconds=LONGEST_WAIT_SECONDS)

    def verb(self, *arguments: str, seconds: float) -> Any:
        return self.service.verb(*arguments, seconds=seconds)

    def ends(self) -> dict[str, int]:
        return {each.stem: each.stat().st_size for each in self.service.in_directory.glob("partition-*.jsonl")}

    def has_read(self, ends: dict[str, int]) -> bool:
        found = {
            f"partition-{each.partition.rpartition('-')[2]}": each.read_to
            for report in find_reports(self.service.run_directory)
            for each in report.partitions
        }
        return all(found.get(name, 0) >= end for name, end in ends.items())

    def is_idle(self, ends: dict[str, int]) -> bool:
        reports = find_reports(self.service.run_directory)
        unpublished = sum(partition.unpublished for each in reports for partition in each.partitions)
        return self.has_read(ends) and self.daemon.is_ready() and unpublished == sum(each.units.waiting for each in reports) == 0

    def has_counted_all(self) -> bool:
        size = self._file("facts/partition-0.jsonl").stat().st_size
        if not self._file("groups/payments/values.db").exists():
            return False
        with closing(ValuesFile(self._file("groups/payments/values.db"), is_copy=True)) as file:
            progress = file.progress(0)
        positions = self._file("groups/payments/positions.json")
        return progress is not None and progress.next_offset >= size and str(size) in positions.read_text()

    def facts(self) -> list[Fact]:
        facts, offset = [], 0
        for line in self._file("facts/partition-0.jsonl").read_bytes().splitlines(keepends=True):
            facts.append(Fact(0, offset, _of_line(line)))
            offset += len(line)
        return facts

    def reports(self) -> list[Stored]:
        path = self._file("groups/payments/completions.jsonl")
        return [_of_line(line) for line in path.read_bytes().splitlines()]

    def values(self) -> dict[str, Value]:
        with closing(ValuesFile(self._file("groups/payments/values.db"), is_copy=True)) as file:
            rows = file._rows("SELECT key, member, body, due FROM value")
        return {f"{key}/{member}" if member else key: (body, due) for key, member, body, due in rows}

    def _file(self, name: str) -> Path:
        return self.service.run_directory / name


class GroupCampaign:
    """Strikes at random moments, in the middle of the work or of the recovery from the strike before."""

    def __init__(self, stage: GroupStage, fault: str, seed: int, *arguments: str) -> None:
        self.stage, self.fault = stage, fault
        self._seed, self._times, self._recovery_seconds = seed, 0, 0.0
        self._began_at = monotonic()
        self._feeder = Feeder(stage, *_QUIET, *arguments)  # type: ignore[arg-type]

    def begin(self) -> None:
        """Wait until the service has read its first records, and some were counted."""
        self.wait_for(lambda: self._feeder.has_failed or any(self.stage.ends().values()), "it is fed")
        self._feeder.check()

    def strike(self, strike: "Strike", chance: Random) -> None:
        """Strike; after about every second strike wait until all was counted that was there by then."""
        pause_at_random(chance, 0.2, 2)
        self._feeder.check()
        began_at = monotonic()
        strike(self.stage, chance)
        self._times += 1
        if chance.random() < 0.5:
            over_at, ends = monotonic(), self.stage.ends()
            self.wait_for(lambda: self.stage.has_read(ends), "it has recovered")
            self._recovery_seconds = max(self._recovery_seconds, monotonic() - over_at)
        print(f"{began_at - self._began_at:7.1f} s  {strike.__name__} took {monotonic() - began_at:.1f} s", flush=True)

    def finish(self) -> GroupRow:
        """Feed to the end, and wait until all is counted. Record the returned row before `judge`, which may fail."""
        self._feeder.stop()
        self._feeder.check()
        over_at, ends = monotonic(), self.stage.ends()
        self.wait_for(lambda: self.stage.is_idle(ends), "everything is read and has left")
        self.wait_for(self.stage.has_counted_all, "all facts are counted")
        self._recovery_seconds = max(self._recovery_seconds, monotonic() - over_at)
        stopped = self.stage.service.verb("stop", seconds=LONGEST_WAIT_SECONDS)
        assert stopped.returncode == 0, stopped.stderr + self._last_words()
        verdict = self._verify()
        return self._row(verdict)

    def judge(self, row: GroupRow) -> None:
        """Check that nothing is wrong, and that there was something to count."""
        wrong = row.lost + row.doubled + row.wrong_counts + row.wrong_values + row.otherwise_wrong
        assert wrong == 0, (row, self.examples)
        assert row.complete > 0

    def give_up(self) -> None:
        self._feeder.stop()

    def wait_for(self, question: Callable[[], object], what: str, seconds: float = LONGEST_WAIT_SECONDS) -> None:
        try:
            wait_until(question, what, seconds, 0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._last_words()}") from error

    def _row(self, verdict: Any) -> GroupRow:
        facts, reports = self.stage.facts(), [read_report(each) for each in self.stage.reports()]
        expected, groups = _recomputed(facts)
        counts = Counter((each.key, each.number) for each in reports)
        wanted = {(each.key, each.number): each for each in expected}
        wrong = [each for each in reports if wanted.get((each.key, each.number), each) != each]
        differences = list(groups.find_differences(self.stage.values()))
        lost, doubled = wanted.keys() - counts.keys(), [each for each in counts if counts[each] > 1 or each not in wanted]
        self.examples = [*sorted(lost)[:3], *doubled[:3], *wrong[:3], *differences[:3], verdict["examples"]]
        return GroupRow(
            fault=self.fault,
            times=self._times,
            transport=self.stage.transport,
            facts=len(facts),
            groups=len(groups.groups),
            complete=len({each.key for each in expected}),
            reports=len(reports),
            lost=len(lost),
            doubled=len(doubled),
            wrong_counts=len(wrong),
            wrong_values=len(differences),
            otherwise_wrong=sum(verdict["counts"].values()),
            recovery_seconds=self._recovery_seconds,
            seed=self._seed,
        )

    def _verify(self) -> Any:
        answer = wait_until(
            lambda: self.stage.verb("verify", "--json", seconds=600).stdout, "it is verified", LONGEST_WAIT_SECONDS, 1
        )
        return json.loads(answer)

    def _last_words(self) -> str:
        log = self.stage.daemon.log_file
        return log.read_text(errors="replace")[-6_000:] if log.exists() else ""


Strike = Callable[[Any, Random], None]


def kill_aggregation_worker(stage: GroupStage, chance: Random) -> None:
    """Kill an aggregation worker as soon as it runs. Its supervisor starts it again, after a pause that grows."""
    send(stage.daemon, chance.randrange(stage.aggregation_workers), signal.SIGKILL, _VERB)


def kill_only_worker(stage: GroupStage, chance: Random) -> None:
    """Kill the worker of a service that has one."""
    del chance
    send(stage.daemon, 0, signal.SIGKILL)


def pause_aggregation_worker(stage: GroupStage, chance: Random) -> None:
    """Pause one for longer than its session: the group gives its partitions to the other, and then it goes on."""
    worker = send(stage.daemon, chance.randrange(stage.aggregation_workers), signal.SIGSTOP, _VERB)
    pause_at_random(chance, SESSION_SECONDS + 1, SESSION_SECONDS + 4)
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


def lose_copies(stage: TopicStage, chance: Random) -> None:
    """Kill an aggregation worker, and delete its copies."""
    slot = chance.randrange(stage.aggregation_workers)
    send(stage.daemon, slot, signal.SIGKILL, _VERB)
    for each in (stage.service.run_directory / "groups" / "payments" / f"worker-{slot}").glob("*.db*"):
        each.unlink(missing_ok=True)


def _recomputed(facts: Sequence[Fact]) -> tuple[list[Told], Recomputed]:
    """Count all facts anew; return the reports that must have left, and the groups."""
    groups, reports = Recomputed(), []
    for each in sorted(facts, key=lambda fact: (fact.partition, fact.offset)):
        found = groups.apply(each.record, each.offset)
        if found is not None:
            reports.append(found)
    return reports, groups


def _stored(record: Any) -> Stored:
    return Stored(record.key, record.value, tuple(record.headers))


def _of_line(line: bytes) -> Stored:
    decoded = decode_line(line)
    assert isinstance(decoded, Line), line
    headers: Mapping[str, bytes] = dict(decoded.headers)
    return Stored(decoded.key, decoded.value, tuple(headers.items()))
