"""What a command costs without a broker, stage by stage."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time

from benchmarks._groups.commands import Shape, commands_of
from benchmarks._groups.restoring import Kept
from guardian.gc_tuning import calm_collector
from notification_service.aggregation.core import Processor
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka.restoring import value_record
from notification_service.aggregation.output import numbered
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import _AT_ONCE
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.size_limits import SizeLimits
from resequencer.record import Origin, Partition, Record

_NOW = 1_774_740_835_941
_TOPICS = KafkaTopics("commands", "completions", "dead-letters", values="values")


class Stages:
    """CPU seconds by stage, added up. `find values` is what applying takes longer with a file than with values in memory."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("apply", "find values", "make records", "fit sizes", "put values"), 0.0)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        began = thread_time()
        yield
        self.seconds[stage] += thread_time() - began


def stages(shape: Shape, members: int) -> tuple[int, Stages]:
    """Return how many commands were applied, and what they cost."""
    calm_collector()
    partition, found = Partition("commands", 0), Stages()
    sent = enumerate(commands_of(shape, members))
    records = [Record(Origin(partition, at), each.body, each.key.encode(), each.headers) for at, each in sent]
    processor, kept, limits = Processor(PaymentsOfMessage(PaymentsSettings())), Kept(), _limits()
    with TemporaryDirectory() as directory, closing(ValuesFile(Path(directory) / "values.db", is_copy=True)) as file:
        file.find_all(())  # It is opened with the first call.
        for begin in range(0, len(records), _AT_ONCE):
            portion = records[begin : begin + _AT_ONCE]
            with found.timed("apply"):
                turn = processor.apply(kept, portion, _NOW)
            with found.timed("find values"):
                processor.apply(file, portion, _NOW)
            with found.timed("make records"):
                output = [value_record(number, *each, 0) for number, each in enumerate(turn.changes.items(), 1)]
                output += numbered(turn.output, len(output) + 1)
            with found.timed("fit sizes"):
                for each in output:
                    limits.fit(each, _NOW)
            kept.put(turn.changes)
            with found.timed("put values"), file.writing() as writing:
                writing.put(turn.changes)
    found.seconds["find values"] -= found.seconds["apply"]
    return len(records), found


def _limits() -> SizeLimits:
    return SizeLimits(_TOPICS, dict.fromkeys(("commands", "completions", "dead-letters", "values"), 1 << 20))
