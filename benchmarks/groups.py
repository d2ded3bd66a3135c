"""What groups cost: `python -m benchmarks.groups [--only speed] [--large]`.

On a broker of its own, with four partitions. Measured are:

    speed      Commands per second of the processor of a store (notification_service/aggregation/), with the payments of messages,
               against a bare loop with the same client: poll, then one transaction that writes as many records of the same sizes,
               with the offsets. Once all payments are in one group, once each is a group of its own, once a hundred are in each
               group, whose commands come interleaved with Zipf keys. One command in a hundred comes twice.
    latency    Milliseconds from when the last command of a group was appended until its completion can be read, while commands
               come at a steady rate, after a warm-up. One group has one latency.
    restoring  Seconds in which a worker has the values of four partitions, from their topic and from its local copy, against a
               bare read of that topic. The goals are for a million values.

Each program runs in a process of its own, in turns. It fails if a group does not complete exactly once with all of its payments,
if anything becomes a dead letter, or if values are missing.
"""

import logging
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from kafka import KafkaProducer, TopicPartition

from benchmarks._commands import SEED, Sent, Shape, commands_of
from benchmarks._kafka_loop import KafkaLoop
from benchmarks._runner import (
    Case,
    Figures,
    Spent,
    Stopwatch,
    WrongResult,
    apart,
    arguments,
    at_quantiles,
    runs,
    show,
    steadily,
    wanted,
)
from benchmarks._servers import PARTITIONS, Measurement, Servers, records_of, running, seen_at
from guardian.headers import GROUP_ID, INCOMPLETE, MEMBER
from notification_service.aggregation.core import Processor, Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_store import KafkaStore, Restoring, value_record
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import _AT_ONCE, StoreRunner
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.producer import partition_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.supervision.system_clock import SystemClock, passed_ms, steady_clock
from resequencer.clock import SteadyClock
from resequencer.gc_tuning import calm_collector
from resequencer.record import Origin, Partition, Record

GOAL = 0.7
"""The goal for the ratio to the bare loop's commands per second."""

WARM_UP_SECONDS = 5
_SAMPLE = 20_000
_NOW = 1_774_740_835_941
_MAX_VALUE_BYTES = 5 << 20


class Load(msgspec.Struct, frozen=True):
    """So many commands in a topic, for so many members of groups."""

    commands: str
    count: int
    shape: Shape = Shape.HUNDREDS
    members: int = 0


class Job(Measurement, frozen=True):
    """What one program does with commands."""

    load: Load

    @property
    def values(self) -> str:
        return f"values-{self.name}"

    @property
    def completions(self) -> str:
        return f"completions-{self.name}"

    @property
    def dead_letters(self) -> str:
        return f"dead-letters-{self.name}"

    @property
    def settings(self) -> KafkaSettings:
        topics = KafkaTopics(self.load.commands, self.completions, self.dead_letters, values=self.values)
        own = {"bootstrap.servers": self.servers.addresses["kafka"]}
        options, _, _ = read_options({**own, "group.id": self.name}, own)
        return KafkaSettings.make(topics, options, f"{self.name}.0", _MAX_VALUE_BYTES)


def new_job(servers: Servers, what: str, load: Load) -> Job:
    """Return new names, with their topics."""
    job = Job(servers, f"{what.replace(' ', '-')}-{uuid4().hex[:8]}", load)
    job.directory.mkdir(parents=True)
    servers.make_topics(job.completions, job.dead_letters)
    servers.make_topics(job.values, cleanup_policy="compact")
    return job


def make_runner(job: Job, aggregate: Any = None) -> StoreRunner:
    """Return the store as an aggregation worker runs it."""
    clock = steady_clock(job.directory, "groups", 0, keeps=False)
    opened = partial(KafkaStore, job.settings, job.directory / "values", clock)
    return StoreRunner(job.name, aggregate or PaymentsOfMessage(PaymentsSettings()), opened, clock, _must_not_wait)


@contextmanager
def sending(servers: Servers) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=servers.addresses["kafka"], batch_size=256 << 10, linger_ms=20)) as producer:
        yield producer
        producer.flush()


def send(producer: KafkaProducer, topic: str, sent: Sent) -> None:
    producer.send(topic, sent.body, sent.key.encode(), list(sent.headers))


def check(job: Job) -> None:
    """Check that each group has one report, which counts all of its members, and that nothing became a dead letter.

    Raises:
        WrongResult: It is not so.
    """
    members, reported = job.load.members, dict[str, int]()
    total = job.load.shape.total(members)
    for record in records_of(job.servers, job.completions):
        headers, report = dict(record.headers), msgspec.json.decode(record.value)["CstmrPmtStsRpt"]
        group = headers[GROUP_ID].decode()
        counts = [int(each["DtldNbOfTxs"]) for each in report["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"]]
        if group in reported or sum(counts) != total or INCOMPLETE in headers:
            raise WrongResult(f"{group} has {counts} of {total} payments, after {reported.get(group)}")
        reported[group] = sum(counts)
    if len(reported) != members // total:
        raise WrongResult(f"{len(reported)} of {members // total} groups have completed")
    if dead_letters := sum(1 for _ in records_of(job.servers, job.dead_letters)):
        raise WrongResult(f"{dead_letters} dead letters")


def _must_not_wait(milliseconds: int) -> None:
    raise AssertionError(f"the store stands still for {milliseconds} ms")


class Out(NamedTuple):
    """A record that is written; `is_value` tells its topic."""

    is_value: bool
    key: bytes
    headers: list[tuple[str, bytes]]
    value: bytes | None


class Written(msgspec.Struct, frozen=True):
    """What the processor wrote for a command, on the average, and many of these records."""

    per_command: float
    sample: list[Out]


def processor(job: Job) -> Spent:
    """Apply all commands. The time runs from when the partitions are held until the last transaction is committed."""
    logging.disable(logging.WARNING)
    runner = make_runner(job)
    calm_collector()
    while len(runner.report().behind) < PARTITIONS:
        runner.turn()
    began_with = runner.report().applied
    job.note_ready()
    watch = Stopwatch()
    while runner.report().applied < job.load.count:
        runner.turn()
    spent = watch.spent()
    runner.close()
    measured = 1 - began_with / job.load.count
    return Spent(spent.wall / measured, spent.cpu / measured)


def bare(job: Job, written: Written) -> Spent:
    """Write as many records of the same sizes as the processor, to the same partitions, at as many commands in a transaction."""
    calm_collector()
    with closing(_Loop(job, written)) as loop:
        loop.join(PARTITIONS)
        job.note_ready()
        watch = Stopwatch()
        loop.run(job.load.count, _AT_ONCE)
        return watch.spent()


def look_at(job: Job) -> Written:
    """Return what the processor wrote."""
    found = [
        Out(is_value, each.key, list(each.headers), each.value)
        for is_value, topic in ((True, job.values), (False, job.completions))
        for each in records_of(job.servers, topic)
    ]
    return Written(len(found) / job.load.count, Random(SEED).sample(found, min(len(found), _SAMPLE)))


class _Loop(KafkaLoop):
    def __init__(self, job: Job, written: Written) -> None:
        super().__init__(job.settings, (), b"")
        self._topics = {True: job.values, False: job.completions}
        self._rate, self._due = written.per_command, 0.0
        self._records = cycle(written.sample)

    def _output(self, polled: dict[TopicPartition, list[Any]]) -> Iterator[tuple[Any, ...]]:
        for partition, records in polled.items():
            self._due += len(records) * self._rate
            for each in islice(self._records, int(self._due)):
                yield self._topics[each.is_value], each.value, each.key, each.headers, partition.partition
            self._due %= 1


def _speed(chosen: Namespace, servers: Servers) -> None:
    for shape in Shape:
        load = _filled(servers, shape, chosen.members)
        first = new_job(servers, "processor", load)
        apart(processor, first)  # It warms up the broker's compiler, and shows what is written.
        check(first)
        written = look_at(first)
        programs: dict[str, Callable[[Job], Spent]] = {"bare loop": partial(bare, written=written), "processor": processor}
        cases = [Case(f"{shape.value}, {name}", partial(_run, servers, program, load)) for name, program in programs.items()]
        cases[1] = cases[1]._replace(of=cases[0].name, goal=GOAL)
        print(f"{shape.value}: {load.count:,} commands, {written.per_command:.2f} records written for each", flush=True)
        show(cases, runs(chosen, cases))


def _run(servers: Servers, program: Callable[[Job], Spent], load: Load) -> Figures:
    job, before = new_job(servers, "speed", load), servers.cpu
    spent = apart(program, job)
    used = servers.cpu - before
    if program is processor:
        check(job)
    return {**spent.of_each(load.count), "broker us": used / load.count * 1e6}


def _filled(servers: Servers, shape: Shape, members: int) -> Load:
    topic, count = f"commands-{shape.name.lower()}", 0
    servers.make_topics(topic)
    with sending(servers) as producer:
        for each in commands_of(shape, members):
            send(producer, topic, each)
            count += 1
    return Load(topic, count, shape, members)


def latencies(servers: Servers, shape: Shape, members: int, rate: float) -> Figures:
    """Return the quantiles of the milliseconds of each group whose last command came after the warm-up.

    The time starts when the broker appended the command, by its timestamp, and ends when a reader of what is committed, a process
    of its own, has the completion.
    """
    sent = list(commands_of(shape, members))
    load = Load(f"steady-{shape.name.lower()}-{uuid4().hex[:8]}", len(sent), shape, members)
    job = new_job(servers, "latency", load)
    servers.make_topics(load.commands, message_timestamp_type="LogAppendTime")
    with get_context("spawn").Pool(2) as processes:
        program = processes.apply_async(processor, (job,))
        reading = processes.apply_async(seen_at, (job, job.completions, GROUP_ID, members // shape.total(members)))
        job.wait_until_ready()
        with closing(KafkaProducer(bootstrap_servers=servers.addresses["kafka"], linger_ms=0)) as producer:
            for each in steadily(sent, rate):
                send(producer, load.commands, each)
            producer.flush()
        seen = reading.get()
        program.get()
    check(job)
    came = _last_came_at(job)
    counts_from = min(came.values()) + (WARM_UP_SECONDS if len(came) > 1 else 0)
    found = [(seen[group] - at) * 1_000 for group, at in came.items() if at >= counts_from]
    return {"groups": len(found), **at_quantiles(found)}


def _last_came_at(job: Job) -> dict[str, float]:
    """Return when the last member of each group came, for the first time."""
    known, last = set[tuple[bytes, bytes]](), dict[str, float]()
    for each in records_of(job.servers, job.load.commands):
        member = each.key, dict(each.headers)[MEMBER]
        if member not in known:
            known.add(member)
            last[each.key.decode()] = each.timestamp / 1_000
    return last


def fill(job: Job, members: int) -> int:
    """Write the values of groups of a hundred as a store writes them, turn by turn; return how many values there are at last."""
    kept = Kept()
    with sending(job.servers) as producer:
        for turn in _turns(kept, members):
            for slot, stored in turn.items():
                record = value_record(0, slot, stored, partition_of(slot.key.encode(), PARTITIONS))
                producer.send(job.values, record.value, record.key, list(record.headers), record.partition)
    return len(kept.stored)


def bare_read(job: Job) -> Spent:
    """Read the topic with the client alone."""
    calm_collector()
    watch = Stopwatch()
    for _ in records_of(job.servers, job.values):
        pass
    return watch.spent()


def restore(job: Job, values: int) -> Spent:
    """Make the values of all partitions ready, one after the other as a worker does, from a copy if there is one.

    Raises:
        WrongResult: There are fewer values, or more.
    """
    calm_collector()
    watch = Stopwatch()
    restoring = Restoring(job.settings, SteadyClock(SystemClock().now, passed_ms))
    files = [ValuesFile(job.directory / f"partition-{number}.db", is_copy=True) for number in range(PARTITIONS)]
    for number, file in enumerate(files):
        restoring.restore(number, file)
    spent = watch.spent()
    found = sum(file.count() for file in files)
    if found != values:
        raise WrongResult(f"{found} of {values} values were restored")
    for file in files:
        file.close()
    return spent


class Kept:
    """Values in memory, from which commands are applied. None is ever due."""

    def __init__(self) -> None:
        self.stored: dict[Slot, Stored] = {}

    def put(self, changes: Mapping[Slot, Stored | None]) -> None:
        self.stored.update({slot: stored for slot, stored in changes.items() if stored is not None})

    def find_all(self, slots: Collection[Slot]) -> Mapping[Slot, Stored]:
        return {slot: self.stored[slot] for slot in slots if slot in self.stored}

    def due(self, until: int, limit: int) -> Sequence[str]:
        return ()

    def members(self, key: str, limit: int) -> Sequence[str]:
        return ()


def _turns(kept: Kept, members: int) -> Iterator[Mapping[Slot, Stored | None]]:
    processor, partition = Processor(PaymentsOfMessage(PaymentsSettings())), Partition("commands", 0)
    sent = enumerate(commands_of(Shape.HUNDREDS, members))
    while portion := list(islice(sent, _AT_ONCE)):
        records = [Record(Origin(partition, at), each.body, each.key.encode(), each.headers) for at, each in portion]
        changes = processor.apply(kept, records, _NOW).changes
        kept.put(changes)
        yield changes


def _latency(chosen: Namespace, servers: Servers) -> None:
    members = round(chosen.rate * chosen.seconds / 100) * 100
    print(f"milliseconds to the completion, at {chosen.rate:g} commands a second", flush=True)
    measured = {shape: partial(latencies, servers, shape, members, chosen.rate) for shape in Shape}
    cases = [Case(f"latency, {shape.value}", each) for shape, each in measured.items()]
    show(cases, runs(chosen, cases), {})


def _restoring(chosen: Namespace, servers: Servers) -> None:
    job = new_job(servers, "restoring", Load("commands-restored", 0))
    servers.make_topics(job.load.commands)
    there = fill(job, round(chosen.values / 101) * 100)
    chosen.rounds = 1  # The second time there is a copy.
    cases = [
        Case("restoring, bare read", partial(_restored, bare_read, job)),
        Case("restoring, from the topic", partial(_restored, restore, job, there), "restoring, bare read", "20 s"),
        Case("restoring, from the copy", partial(_restored, restore, job, there), "restoring, bare read", "2 s"),
    ]
    print(f"{there:,} values", flush=True)
    show(cases, runs(chosen, cases), {"s": 1, "CPU s": 1})


def _restored(program: Callable[..., Spent], *given: Any) -> Figures:
    spent = apart(program, *given)
    return {"s": spent.wall, "CPU s": spent.cpu}


PARTS: dict[str, Callable[[Namespace, Servers], None]] = {"speed": _speed, "latency": _latency, "restoring": _restoring}


def main() -> None:
    large = {"members": 1_000_000, "values": 1_000_000}
    chosen = arguments(__doc__, large=large, members=20_000, values=50_000, rate=500.0, seconds=15.0)
    with running("kafka") as servers:
        for name, part in PARTS.items():
            if wanted(chosen, name):
                part(chosen, servers)


if __name__ == "__main__":
    main()
