"""The contract suite of transports (tests/notification_service/connectors/contract.py) on real files."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from harness.waiting import wait_ms

from guardian.ports import Channel
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, decode_line, encode_line
from resequencer.record import Partition
from tests.notification_service.connectors.contract import TransportContract


class FileHarness:
    partitions = (Partition("T", 0), Partition("T", 1))

    def __init__(self, directory: Path) -> None:
        self._facts = directory / "facts" / "partition-0.jsonl"
        own = {"poll_interval_ms": 1, "facts_directory": directory / "facts"}
        self._settings = FileSettings("T", directory / "in", directory / "out", **own)
        self._settings.in_directory.mkdir()
        for each in self.partitions:
            self._file(each).touch()

    def make(self) -> FileTransport:
        return FileTransport(self._settings, wait_ms)

    def send(self, partition: Partition, *values: bytes) -> None:
        with self._file(partition).open("ab") as file:
            file.writelines(encode_line(Line(value, b"unit")) for value in values)

    def left(self, channel: Channel) -> Sequence[Line]:
        is_fact = channel is Channel.FACTS
        file = self._facts if is_fact else self._settings.out_directory / f"{channel}.jsonl"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [line for each in lines if isinstance(line := decode_line(each), Line)]

    def _file(self, partition: Partition) -> Path:
        return self._settings.in_directory / f"partition-{partition.number}.jsonl"


class TestFileContract(TransportContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> FileHarness:
        return FileHarness(tmp_path)
