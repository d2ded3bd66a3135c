"""Copies the output topics to files in the form of the file transport, for comparing them as files."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from guardian.ports import Channel
from notification_service.connectors.kafka.core.dead_letter_notes import is_note
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.connectors.line_format import Line, encode_line

_COPIED = (Channel.NOTIFICATIONS, Channel.DEAD_LETTERS, Channel.ORDER_OUTCOMES)


class TopicExport:
    """Reads the topics from their beginnings, and appends to `<channel>.jsonl`.

    The records of a partition keep their order. Operators' notes among the dead letters are left out. `more` are further topics,
    each with the name of its file.
    """

    def __init__(self, settings: KafkaSettings, directory: Path, more: Mapping[str, str] | None = None) -> None:
        names = {settings.topics.output(channel): f"{channel}.jsonl" for channel in _COPIED} | dict(more or {})
        self._files = {topic: (directory / name).open("ab") for topic, name in names.items() if topic}
        self._reader = CommittedReader(settings, list(self._files))

    def catch_up(self) -> None:
        """Copy the records up to the current ends.

        Raises:
            TransportUnavailable, TransportRefused: The topics cannot be read.
        """
        for name, records in self._reader.read(self._reader.ends()):
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
        if not is_note(headers):
            yield encode_line(Line(each.value or b"", each.key, headers))
