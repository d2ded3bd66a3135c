"""What a test left open on purpose, as a killed process does, is closed at its end."""

from collections.abc import Iterator
from typing import Any

import pytest

from notification_service.connectors.files.sink import FileTransport


@pytest.fixture(autouse=True)
def transports_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Otherwise the process of the tests would run out of descriptors below 1024, which is what `select` knows."""
    opened: list[FileTransport] = []
    begin = FileTransport.__init__

    def note(transport: FileTransport, *arguments: Any, **named: Any) -> None:
        begin(transport, *arguments, **named)
        opened.append(transport)

    monkeypatch.setattr(FileTransport, "__init__", note)
    yield
    for each in opened:
        each.close()
