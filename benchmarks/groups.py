"""What groups cost: `python -m benchmarks.groups [--only speed] [--large]`.

On a broker of its own, with four partitions. Measured are:

    speed      Commands per second of the processor of a store (notification_service/aggregation/), with the payments of messages,
               against a bare loop with the same client: poll, then one transaction that writes as many records of the same sizes,
               with the offsets. Once all payments are in one group, once each is a group of its own, once a hundred are in each
               group, whose commands come interleaved with Zipf keys. One command in a hundred comes twice.
    latency    Milliseconds from when the last command of a group was appended until its completion can be read, while commands
               come at a steady rate, after a warm-up. One group has one latency.
    restoring  Seconds in which a worker has the values of four partitions that a processor has written, from their topic and from
               its local copy, against a bare read of that topic. The goals are for a million values.

Each program runs in a process of its own, in turns. It fails if a group does not complete exactly once with all of its payments,
if anything becomes a dead letter, or if values are missing.
"""

import logging
from argparse import Namespace
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import count, cycle, islice
from random import Random
from typing import Any, NamedTuple

import msgspec

from benchmarks._kafka_loop import Polled, kafka_loop
from benchmarks._runner import Case, Figures, Spent, Stopwatch, WrongResult, apart, arguments, milliseconds, runs, show, wanted
from benchmarks._servers import PARTITIONS, Measurement, Servers, fill, new_name, records_of, running, seen_steadily
from guardian.headers import (
    GROUP_ID,
    GROUP_TOTAL,
    INCOMPLETE,
    MEMBER,
    PROCESSING_ENTITY,
    SOURCE_POSITION,
    TRANSACTION_STATUS,
)
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_store import KafkaStore, Restoring, read_value
from notification_service.aggregation.payments.commands import StatedInstruction, StatedMessage, StatusFact
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import _AT_ONCE, StoreRunner
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.line_format import Line
from notification_service.supervision.system_clock import SystemClock, passed_ms, steady_clock
from resequencer.clock import SteadyClock
from resequencer.gc_tuning import calm_collector

GOAL = 0.7
"""The goal for the ratio to the bare loop's commands per second."""

SEED = 7
_SAMPLE = 20_000
_MAX_VALUE_BYTES = 5 << 20
_DOUBLED = 0.01
_REJECTED = 0.05
_BEHIND = 500


class Shape(StrEnum):
    """How commands are spread over groups: all in one, each in its own, or a hundred in each, interleaved with Zipf keys."""

    ONE = "one group"
    SINGLES = "groups of one"
    HUNDREDS = "groups of a hundred"

    def total(self, members: int) -> int:
        """Return how many members each group has of so many in all."""
        return {Shape.ONE: members, Shape.SINGLES: 1, Shape.HUNDREDS: min(100, members)}[self]


def commands_of(shape: Shape, members: int) -> Iterator[Line]:
    """Yield facts as the service makes them, of payments that each have one final status.

    In the groups of a hundred, the group of rank r has 1/r of the first one's rate until all of its members have come. One in a
    hundred commands comes twice, the second time up to some hundred places later.
    """
    chance, total = Random(SEED), shape.total(members)
    groups = [place // total for place in range(members)]
    if shape is Shape.HUNDREDS:
        groups.sort(key=lambda group: chance.random() * (group + 1))
    numbers = [count() for _ in range(members // total)]
    order = [(place, group, next(numbers[group])) for place, group in enumerate(groups)]
    order += [(place + chance.randrange(_BEHIND), *of) for place, *of in order if chance.random() < _DOUBLED]
    for _, group, number in sorted(order):
        yield _command(f"{shape.name.lower()}-{group:07}", f"unit-{group:07}-{number:07}", total, Random(group * total + number))


def _command(key: str, member: str, total: int, chance: Random) -> Line:
    status, number = "RJCT" if chance.random() < _REJECTED else "ACCC", str(total)
    message = StatedMessage(f"MSG-{key}", "pain.001.001.09", "2026-03-29T09:00:35.941Z", number)
    party = {"Nm": f"Customer {chance.randrange(1_000)} GmbH", "Id": {"OrgId": {"AnyBIC": "DEUTDEFFXXX"}}}
    fact = StatusFact(
        member,
        status,
        amount=f"{chance.randrange(1, 1_000_000)}.{chance.randrange(1, 100):02}",
        currency="EUR",
        entity="001",
        original=message,
        instruction=StatedInstruction(f"PMT-{key}", number),
        party=msgspec.Raw(msgspec.json.encode(party)),
    )
    headers = {
        MEMBER: member,
        TRANSACTION_STATUS: status,
        PROCESSING_ENTITY: "001",
        GROUP_ID: key,
        GROUP_TOTAL: number,
        SOURCE_POSITION: f"envelopes-0@{chance.randrange(1_000_000)}",
    }
    return Line(msgspec.json.encode(fact), key.encode(), tuple((name, text.encode()) for name, text in headers.items()))


class Job(Measurement, frozen=True):
    """What one program does with the commands of so many members of groups."""

    shape: Shape
    members: int

    @property
    def topics(self) -> KafkaTopics:
        completions, dead_letters, values = (f"{kind}-{self.name}" for kind in ("completions", "dead-letters", "values"))
        return KafkaTopics(self.topic, completions, dead_letters, values=values)

    @property
    def settings(self) -> KafkaSettings:
        own = {"bootstrap.servers": self.servers.addresses["kafka"]}
        options, _, _ = read_options({**own, "group.id": self.name}, own)
        return KafkaSettings.make(self.topics, options, f"{self.name}.0", _MAX_VALUE_BYTES)


def new_job(servers: Servers, what: str, *load: Any) -> Job:
    """Return new names, with their topics."""
    job = Job(servers, new_name(what), *load)
    job.directory.mkdir(parents=True)
    servers.make_topics(job.topics.notifications, job.topics.dead_letters)
    servers.make_topics(job.topics.values, cleanup_policy="compact")
    return job


def processor(job: Job) -> Spent:
    """Apply all commands. The time runs from when the partitions are held until the last transaction is committed."""
    logging.disable(logging.WARNING)
    clock = steady_clock(job.directory, "groups", 0, keeps=False)
    opened = partial(KafkaStore, job.settings, job.directory / "values", clock)
    runner = StoreRunner(job.name, PaymentsOfMessage(PaymentsSettings()), opened, clock, _must_not_wait)
    spent = job.run(runner.turn, lambda: runner.report().applied, lambda: len(runner.report().behind) == PARTITIONS)
    runner.close()
    return spent


def _must_not_wait(milliseconds: int) -> None:
    raise AssertionError(f"the store stands still for {milliseconds} ms")


def check(job: Job) -> None:
    """Check that each group has one report, which counts all of its members, and that nothing became a dead letter.

    Raises:
        WrongResult: It is not so.
    """
    reported, total = dict[str, int](), job.shape.total(job.members)
    for record in records_of(job.servers, job.topics.notifications):
        headers, report = dict(record.headers), msgspec.json.decode(record.value)["CstmrPmtStsRpt"]
        group = headers[GROUP_ID].decode()
        counts = [int(each["DtldNbOfTxs"]) for each in report["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"]]
        if group in reported or sum(counts) != total or INCOMPLETE in headers:
            raise WrongResult(f"{group} has {counts} of {total} payments, after {reported.get(group)}")
        reported[group] = sum(counts)
    if len(reported) != job.members // total:
        raise WrongResult(f"{len(reported)} of {job.members // total} groups have completed")
    if dead_letters := sum(1 for _ in records_of(job.servers, job.topics.dead_letters)):
        raise WrongResult(f"{dead_letters} dead letters")


class Written(NamedTuple):
    """How many records the processor wrote for a command, and many of them: whether one is a value, and its content."""

    per_command: float
    sample: list[tuple[bool, bytes, bytes, list[tuple[str, bytes]]]]


def look_at(job: Job) -> Written:
    found = [
        (is_value, each.value, each.key, list(each.headers))
        for is_value, topic in ((True, job.topics.values), (False, job.topics.notifications))
        for each in records_of(job.servers, topic)
    ]
    return Written(len(found) / job.count, Random(SEED).sample(found, min(len(found), _SAMPLE)))


def bare(written: Written, job: Job) -> Spent:
    """Write as many records of the same sizes as the processor, to the same partitions, at as many commands in a transaction."""
    sample, due, topics = cycle(written.sample), 0.0, job.topics

    def output(polled: Polled) -> Iterator[tuple[Any, ...]]:
        nonlocal due
        for partition, records in polled.items():
            due += len(records) * written.per_command
            for is_value, value, key, headers in islice(sample, int(due)):
                yield topics.values if is_value else topics.notifications, value, key, headers, partition.partition
            due %= 1

    calm_collector()
    return kafka_loop(job.settings, output, job.count, _AT_ONCE, PARTITIONS, job.note_ready)


def _speed(chosen: Namespace, servers: Servers) -> None:
    for shape in Shape:
        topic = new_name("commands")
        load = (topic, fill(servers, topic, commands_of(shape, chosen.members)), shape, chosen.members)
        first = new_job(servers, "first", *load)
        apart(processor, first)  # It warms up the broker's compiler, and shows what is written.
        check(first)
        written = look_at(first)
        programs: dict[str, Callable[[Job], Spent]] = {"bare loop": partial(bare, written), "processor": processor}
        cases = [Case(f"{shape.value}, {name}", partial(_run, servers, program, load)) for name, program in programs.items()]
        cases[1] = cases[1]._replace(of=cases[0].name, goal=GOAL)
        print(f"{shape.value}: {first.count:,} commands, {written.per_command:.2f} records written for each", flush=True)
        show(cases, runs(chosen, cases))


def _run(servers: Servers, program: Callable[[Job], Spent], load: tuple[Any, ...]) -> Figures:
    job, before = new_job(servers, "speed", *load), servers.cpu
    spent = apart(program, job)
    used = servers.cpu - before
    if program is processor:
        check(job)
    return {**spent.of_each(job.count), "broker us": used / job.count * 1e6}


def latencies(servers: Servers, shape: Shape, members: int, rate: float) -> Figures:
    """Measure from the broker's timestamp of each group's last command until a reader of what is committed has the completion."""
    sent = list(commands_of(shape, members))
    job = new_job(servers, "latency", new_name("steady"), len(sent), shape, members)
    seen = seen_steadily(
        job, partial(processor, job), sent, rate, job.topics.notifications, GROUP_ID, members // shape.total(members)
    )
    check(job)
    came, last = dict[bytes, float](), dict[str, float]()
    for each in records_of(servers, job.topic):
        member = dict(each.headers)[MEMBER]
        if came.setdefault(member, each.timestamp) == each.timestamp:
            last[each.key.decode()] = each.timestamp / 1_000
    return milliseconds(last, seen)


def _latency(chosen: Namespace, servers: Servers) -> None:
    members = round(chosen.rate * chosen.seconds / 100) * 100
    print(f"milliseconds to the completion, at {chosen.rate:g} commands a second", flush=True)
    measured = {shape: partial(latencies, servers, shape, members, chosen.rate) for shape in Shape}
    cases = [Case(f"latency, {shape.value}", each) for shape, each in measured.items()]
    show(cases, runs(chosen, cases), {})


def bare_read(job: Job) -> Spent:
    """Read the topic with the client alone."""
    calm_collector()
    watch = Stopwatch()
    for _ in records_of(job.servers, job.topics.values):
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


def _restoring(chosen: Namespace, servers: Servers) -> None:
    topic, members = new_name("commands"), round(chosen.values / 101) * 100
    load = (topic, fill(servers, topic, commands_of(Shape.HUNDREDS, members)), Shape.HUNDREDS, members)
    job = new_job(servers, "restoring", *load)
    apart(processor, job)
    values = dict(filter(None, map(read_value, records_of(servers, job.topics.values))))
    there = sum(1 for each in values.values() if each is not None)
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
