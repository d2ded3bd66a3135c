"""Copies the output topics to files, in the form that the file transport writes, for whoever compares files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from connectors.file_lines import Line, encode_line
from connectors.kafka_client import make_client
from connectors.kafka_errors import translated
from connectors.kafka_settings import KafkaSettings
from connectors.kafka_topics import Topics
from connectors.port import Channel

_POLL_MS = 200


class KafkaMirror:
    """Reads as a reader of committed records does, from the beginnings of the topics, and appends to `<channel>.jsonl`.

    The records of a partition keep their order.
    """

    def __init__(self, settings: KafkaSettings, directory: Path) -> None:
        self._settings = settings
        self._files = {settings.topics.output(channel): (directory / f"{channel}.jsonl").open("ab") for channel in Channel}
        topics = Topics(settings)
        try:
            topics.look()
        finally:
            topics.close()
        options = {name: value for name, value in settings.consumer.items() if name not in ("group_id", "group_instance_id")}
        self._reader: KafkaConsumer = make_client("the output", KafkaConsumer, {**options, "group_id": None})
        with translated("the output"):
            names = [
                TopicPartition(topic, number) for topic in self._files for number in self._reader.partitions_for_topic(topic)
            ]
            self._reader.assign(names)
            self._reader.seek_to_beginning()
        self._names = names

    def catch_up(self) -> None:
        """Copy what is there as of now.

        Raises:
            TransportUnavailable, TransportRefused: The topics cannot be read.
        """
        with translated("the output"):
            ends = self._reader.end_offsets(self._names, timeout_ms=self._settings.call_timeout_ms)
            while any(self._reader.position(name, timeout_ms=self._settings.call_timeout_ms) < end for name, end in ends.items()):
                for name, records in self._reader.poll(timeout_ms=_POLL_MS, max_records=5_000).items():
                    self._files[name.topic].writelines(_lines(records))
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        self._reader.close()
        for file in self._files.values():
            file.close()


def _lines(records: Iterable[Any]) -> Iterable[bytes]:
    for each in records:
        headers = tuple((name, value or b"") for name, value in each.headers)
        yield encode_line(Line(each.value or b"", each.key, headers))
