"""When the brokers had the records at some positions is asked once, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from guardian.ports import TransportUnavailable
from notification_service.configuration.configuration import Configuration
from notification_service.connectors.kafka import topic_reader
from notification_service.wiring.console import WrittenAt
from resequencer.record import Origin, Partition

KAFKA = "ipf.processing-data.ingress.transport = kafka\npayment-status-notification.transport = kafka"


def at(offset: int, topic: str = "IPF_PROCESSING_DATA") -> Origin:
    return Origin(Partition(topic, 0), offset)


def test_what_is_known_is_not_asked_again(loaded: Callable[..., Configuration], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[Origin]] = []

    def find_written(settings: object, topic: str, origins: Sequence[Origin], seconds: float) -> dict[Origin, int]:
        del settings, topic, seconds
        asked.append(list(origins))
        if at(9) in origins:
            raise TransportUnavailable("away")
        return {each: each.offset * 1_000 for each in origins if each != at(2)}

    monkeypatch.setattr(topic_reader, "find_written", find_written)
    written = WrittenAt(loaded(KAFKA))
    assert written.find([at(1), at(2), at(3, "ANOTHER")], 1) == {at(1): 1_000}
    assert written.find([at(1), at(4)], 1) == {at(1): 1_000, at(4): 4_000}
    assert written.find([at(1), at(9)], 1) == {at(1): 1_000}
    assert written.find([at(1)], 1) == {at(1): 1_000}
    assert asked == [[at(1), at(2)], [at(4)], [at(9)]]


def test_files_have_no_such_instants(loaded: Callable[..., Configuration]) -> None:
    files = "ipf.processing-data.ingress.transport = file\npayment-status-notification.transport = file"
    assert WrittenAt(loaded(files)).find([at(1)], 1) == {}
