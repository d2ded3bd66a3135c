"""How long values take from their topic, and how long from a local copy, beside a bare read of the topic."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from benchmarks._groups.commands import Shape, commands_of
from benchmarks._groups.stage import PARTITIONS, Job, WrongResult, records_of, sending
from benchmarks._worker import Spent, Stopwatch
from guardian.gc_tuning import calm_collector
from notification_service.aggregation.core import Processor, Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka.restoring import Restoring, value_record
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import _AT_ONCE
from notification_service.connectors.kafka.producer import partition_of
from notification_service.supervision.system_clock import SystemClock, passed_ms
from resequencer.clock import SteadyClock
from resequencer.record import Origin, Partition, Record

_NOW = 1_774_740_835_941


def fill(job: Job, members: int) -> int:
    """Write the values of groups of a hundred as a store writes them, turn by turn; return how many values there are at last."""
    kept = Kept()
    with sending(job.broker) as producer:
        for turn in _turns(kept, members):
            for slot, stored in turn.items():
                record = value_record(0, slot, stored, partition_of(slot.key.encode(), PARTITIONS))
                producer.send(job.values, record.value, record.key, list(record.headers), record.partition)
    return len(kept.stored)


def bare_read(job: Job) -> tuple[Spent, int]:
    """Read the topic with the client alone; return also how many records it has."""
    calm_collector()
    watch = Stopwatch()
    count = sum(1 for _ in records_of(job.broker, job.values))
    return watch.spent(), count


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

    def due(self, until: int, most: int) -> Sequence[str]:
        return ()

    def members(self, key: str, most: int) -> Sequence[str]:
        return ()


def _turns(kept: Kept, members: int) -> Iterator[Mapping[Slot, Stored | None]]:
    processor, partition = Processor(PaymentsOfMessage(PaymentsSettings())), Partition("commands", 0)
    sent = enumerate(commands_of(Shape.HUNDREDS, members))
    while portion := list(islice(sent, _AT_ONCE)):
        records = [Record(Origin(partition, at), each.body, each.key.encode(), each.headers) for at, each in portion]
        changes = processor.apply(kept, records, _NOW).changes
        kept.put(changes)
        yield changes
