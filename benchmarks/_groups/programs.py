"""The programs that are measured: the processor of a store, and the bare loop that reads and writes as much."""

import logging
from contextlib import closing
from itertools import cycle, islice
from random import Random
from typing import Any, NamedTuple

import msgspec
from kafka import OffsetAndMetadata, TopicPartition

from benchmarks._groups.commands import SEED
from benchmarks._groups.stage import PARTITIONS, Job, make_runner, records_of
from benchmarks._kafka_loop import KafkaLoop
from benchmarks._worker import Spent, Stopwatch
from guardian.gc_tuning import calm_collector
from notification_service.aggregation.runner import _AT_ONCE

_SAMPLE = 20_000


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
    share = 1 - began_with / job.load.count
    return Spent(spent.wall / share, spent.cpu / share)


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
        for each in records_of(job.broker, topic)
    ]
    return Written(len(found) / job.load.count, Random(SEED).sample(found, min(len(found), _SAMPLE)))


class _Loop(KafkaLoop):
    def __init__(self, job: Job, written: Written) -> None:
        super().__init__(job.settings, (), b"")
        self._topics = {True: job.values, False: job.completions}
        self._rate, self._owed = written.per_command, 0.0
        self._records = cycle(written.sample)

    def _pass_on(self, polled: dict[TopicPartition, list[Any]]) -> None:
        producer, topics = self._producer, self._topics
        producer.begin_transaction()
        for partition, records in polled.items():
            self._owed += len(records) * self._rate
            for each in islice(self._records, int(self._owed)):
                producer.send(topics[each.is_value], each.value, each.key, each.headers, partition.partition)
            self._owed %= 1
        offsets = {each: OffsetAndMetadata(records[-1].offset + 1, "", -1) for each, records in polled.items()}
        producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        producer.flush()
        producer.commit_transaction()
