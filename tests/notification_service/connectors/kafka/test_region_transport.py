"""Regions with Kafka in them: each sink gets each record once and in order, wherever a worker dies."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.nightly import at_night
from harness.waiting import wait_until

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, PublishRefused, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.files.source import FileSource
from notification_service.connectors.kafka.sink import KafkaSink, KafkaSource
from notification_service.connectors.region_port import Sink, Source
from notification_service.connectors.region_transport import RegionTransport, routes_of
from resequencer.record import Partition, Record
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.region_stage import RegionStage, until_done

pytestmark = pytest.mark.slow


class Crash(BaseException):
    """The worker's process ends here."""


class Worker:
    """Sends each record on, without a storage. The number is that of the record's place, so it is the same another time."""

    def __init__(self, source: Source, sinks: dict[str, Sink]) -> None:
        self.source = source
        self.transport = RegionTransport(source, routes_of(sinks))
        self._read_to: dict[Partition, int] = {}

    def cycle(self) -> None:
        """Take over, poll and publish once, as the guardian does."""
        assigned = set(self.transport.assignment())
        self._read_to = {each: offset for each, offset in self._read_to.items() if each in assigned}
        for each in sorted(assigned - self._read_to.keys()):
            self._take_over(each)
        polled = self.transport.poll(50, 50)
        outputs = [
            self._output(each, offset, [record for record in polled.records if record.origin.partition == each])
            for each, offset in polled.next_offsets.items()
        ]
        if outputs:
            self._publish(outputs)

    def close(self) -> None:
        self.transport.close()

    def _take_over(self, partition: Partition) -> None:
        position = self.transport.position(partition)
        offset = self.transport.start_offset(partition) if position is None else position.offset
        if position is None:
            self.transport.publish([PartitionOutput(partition, (), Position(offset, '["start",0,0]'))])
        self.transport.seek(partition, offset)
        self._read_to[partition] = offset

    def _output(self, partition: Partition, offset: int, records: Sequence[Record]) -> PartitionOutput:
        output = tuple(OutputRecord(each.origin.offset + 1, Channel.NOTIFICATIONS, b"k", (), each.value) for each in records)
        return PartitionOutput(partition, output, Position(offset, f'["t",{offset},0]'))

    def _publish(self, outputs: Sequence[PartitionOutput]) -> None:
        try:
            until_done(lambda: self.transport.publish(outputs))
        except PublishRefused:
            self._read_to = {}  # All of them are taken over again.


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[RegionStage]:
    stage = RegionStage(kafka)
    yield stage
    stage.close()


class Place:
    """Makes workers of one pair, reads what is published, and writes input."""

    def __init__(self, stage: RegionStage, directory: Path) -> None:
        self.stage = stage
        self._files = FileSettings("T", directory / "in", directory / "out")
        self._files.in_directory.mkdir()

    def worker(self, source: str, *sinks: str, slot: str = "slot", partitions: tuple[int, ...] | None = None) -> Worker:
        made = (
            FileSource(self._files, lambda *_: None, SystemFiles()) if source == "file" else self.stage.source(slot, partitions)
        )
        return Worker(
            made, {each: FileSink(self._files, SystemFiles()) if each == "file" else self.stage.sink() for each in sinks}
        )

    def send(self, source: str, *numbers: int) -> None:
        """Send JSON numbers, the even ones to partition 0 and the odd ones to partition 1."""
        for part in (0, 1):
            texts = [b'{"n":%d}' % each for each in numbers if each % 2 == part]
            if source == "kafka":
                self.stage.send(*texts, partition=part)
            else:
                with (self._files.in_directory / f"partition-{part}.jsonl").open("ab") as file:
                    file.writelines(b'{"value":%s,"key":"k"}\n' % each for each in texts)

    def published(self, sink: str) -> list[int]:
        if sink == "kafka":
            return [json.loads(each)["n"] for each in self.stage.published()]
        path = self._files.out_directory / "notifications.jsonl"
        return [json.loads(line)["value"]["n"] for line in path.read_bytes().splitlines()] if path.exists() else []

    def expect(self, count: int, *sinks: str) -> None:
        """Expect the numbers below `count` in each sink, each once, and in order within each partition."""
        for sink in sinks:
            found = self.published(sink)
            assert [each for each in found if not each % 2] == [*range(0, count, 2)], sink
            assert [each for each in found if each % 2] == [*range(1, count, 2)], sink


@pytest.fixture
def place(stage: RegionStage, tmp_path: Path) -> Place:
    return Place(stage, tmp_path)


def until_published(place: Place, count: int, sinks: Sequence[str], *workers: Worker) -> None:
    def is_published() -> bool:
        for each in workers:
            until_done(each.cycle)
        return all(len(place.published(sink)) >= count for sink in sinks)

    wait_until(is_published, f"{count} records")


def until_published_by_a_group(place: Place, count: int, *workers: Worker) -> None:
    """Let members of a group work at the same time: if each waited for the other in turn, they could join again for ever."""

    def is_published() -> bool:
        for each in [at_once.submit(until_done, each.cycle) for each in workers]:
            each.result()
        return len(place.published("kafka")) >= count

    with ThreadPoolExecutor() as at_once:
        wait_until(is_published, f"{count} records")


def dies(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, *, before: bool) -> None:
    """Let the next call of this method that has output end the process, before or after its work."""
    real = getattr(kind, name)

    def struck(each: Any, given: Any) -> Any:
        is_output = not isinstance(given, list) or any(output.records for output in given)
        if not is_output:
            return real(each, given)
        monkeypatch.setattr(kind, name, real)
        if not before:
            real(each, given)
        raise Crash

    monkeypatch.setattr(kind, name, struck)


PAIRS = [("kafka", ("file",)), ("file", ("kafka",)), ("kafka", ("file", "kafka")), ("kafka", ("kafka", "file"))]


def deaths(source: str, sinks: tuple[str, ...]) -> list[tuple[type, str, bool]]:
    kinds = {"kafka": KafkaSink, "file": FileSink}
    found = [(kinds[each], "publish", before) for each in sinks for before in (True, False)]
    return found + ([(KafkaSource, "acknowledge", False)] if source == "kafka" else [])


@pytest.mark.parametrize(
    ("source", "sinks", "kind", "name", "before"),
    [
        *((*PAIRS[0], *death) for death in deaths(*PAIRS[0])),
        *at_night("regions", *((source, sinks, *death) for source, sinks in PAIRS[1:] for death in deaths(source, sinks))),
    ],
)
def test_a_worker_that_dies_between_two_steps_of_a_publication_leaves_each_record_once(
    place: Place, monkeypatch, source: str, sinks: tuple[str, ...], kind: type, name: str, before: bool
) -> None:
    worker = place.worker(source, *sinks)
    place.send(source, *range(10))
    until_published(place, 10, sinks, worker)
    place.send(source, *range(10, 30))
    dies(monkeypatch, kind, name, before=before)
    with pytest.raises(Crash):
        until_published(place, 30, sinks, worker)
    worker.close()  # As the kernel does with what a dead process had.
    place.send(source, *range(30, 40))
    again = place.worker(source, *sinks)
    until_published(place, 40, sinks, again)
    again.close()
    place.expect(40, *sinks)


def test_a_sink_that_fails_after_another_one_has_the_records_gets_them_once(place: Place, monkeypatch) -> None:
    worker = place.worker("kafka", "file", "kafka")
    place.send("kafka", *range(10))
    until_published(place, 10, ["file", "kafka"], worker)
    real, fails = KafkaSink.publish, [True, True, True]

    def away(sink: KafkaSink, outputs: Sequence[PartitionOutput]) -> None:
        if fails:
            fails.pop()
            raise TransportUnavailable("planted: away")
        real(sink, outputs)

    monkeypatch.setattr(KafkaSink, "publish", away)
    place.send("kafka", *range(10, 30))
    until_published(place, 30, ["file", "kafka"], worker)
    worker.close()
    assert not fails
    place.expect(30, "file", "kafka")


def test_a_rebalance_in_the_middle_of_a_publication_leaves_each_record_once(place: Place, monkeypatch) -> None:
    """The sink has the records, and their partition is another worker's when they are acknowledged."""
    one = place.worker("kafka", "kafka", slot="one")
    place.send("kafka", *range(10))
    until_published(place, 10, ["kafka"], one)
    two = place.worker("kafka", "kafka", slot="two")
    real = KafkaSource.acknowledge
    refused: list[PublishRefused] = []

    def rebalanced(source: KafkaSource, positions: Any) -> None:
        """Let the other worker get a partition before this one acknowledges."""
        monkeypatch.setattr(KafkaSource, "acknowledge", real)

        def has_one() -> bool:
            with ThreadPoolExecutor() as both:
                polls = [both.submit(each.poll, 0, 200) for each in (source, two.source)]
                for each in polls:
                    each.result()
            return bool(two.source.assignment())

        wait_until(has_one, "a partition for the other")
        until_done(two.cycle)
        try:
            real(source, positions)
        except PublishRefused as error:
            refused.append(error)
            raise

    monkeypatch.setattr(KafkaSource, "acknowledge", rebalanced)
    place.send("kafka", *range(10, 30))

    def is_refused() -> bool:
        until_done(one.cycle)
        return bool(refused)

    wait_until(is_refused, "a refusal")
    until_published_by_a_group(place, 30, one, two)
    place.send("kafka", *range(30, 50))
    until_published_by_a_group(place, 50, one, two)
    one.close()
    two.close()
    place.expect(50, "kafka")


def test_two_workers_of_the_same_fixed_partitions_leave_each_record_once(place: Place) -> None:
    """A mistake in a configuration costs time, and no promise: they take the partitions over from each other."""
    workers = [place.worker("kafka", "kafka", slot=name, partitions=(0, 1)) for name in ("one", "two")]
    for begin in range(0, 60, 10):
        place.send("kafka", *range(begin, begin + 10))
        until_published(place, begin + 10, ["kafka"], *workers)
    for each in workers:
        each.close()
    place.expect(60, "kafka")
