"""The dead letters of a service on Kafka, for an operator (docs/decisions/0024-dead-letters-on-topics.md)."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kafka import TopicPartition

from guardian.ports import TransportRefused
from notification_service.connectors.dead_letters.actions import (
    Action,
    StoredDeadLetter,
    stored_dead_letter,
)
from notification_service.connectors.dead_letters.port import AskedFor, NotedActions, Outcome, Sign
from notification_service.connectors.kafka.core.records import is_note, read_note
from notification_service.connectors.kafka.requeue import KafkaRequeue, RequeueRoute, route_to_input
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from resequencer.errors import ResequencerError
from resequencer.record import Headers, OutputNumber, Partition

_EARLIER_MS = 60_000
"""How much before the given instant reading begins: the instant is that of a worker's clock, the timestamp of a client's."""

_MAX_WARNED = 1_000
_LOG = logging.getLogger("resequencer.connectors")


class KafkaDeadLetterStore(NotedActions):
    """Implements `DeadLetterStore`. A dead letter's number is its place in the topic; actions on it are noted behind it.

    Each call of `letters` and `actions` reads the topic again. It begins at the dead letters asked for and stops where the topic
    ended when the store was opened, or when `begin` was called. They are requeued on the `route`, by default to the input.
    """

    def __init__(self, settings: KafkaSettings, asked_for: AskedFor, sign: Sign, route: RequeueRoute | None = None) -> None:
        super().__init__(sign, lambda actions: self._ordering().note(actions))
        self._settings = settings
        self._route = route or route_to_input(settings.topics.input)
        self._topic = settings.topics.dead_letters
        self._asked_for = asked_for
        self._reader = CommittedReader(settings, [self._topic])
        self._ends = self._reader.ends()
        self._requeue: KafkaRequeue | None = None
        self._warned: set[str] = set()

    @property
    def where(self) -> str:
        return f"topic {self._topic}"

    def letters(self) -> Iterator[StoredDeadLetter]:
        for number, each, headers in self._records():
            if not is_note(headers):
                try:
                    yield self.named(stored_dead_letter(number, "", each.key, headers, each.value))
                except ValueError as error:
                    self._warn(number, error)

    def actions(self) -> Iterator[Action]:
        for number, each, headers in self._records():
            if is_note(headers):
                try:
                    yield read_note(each.value or b"")
                except ValueError as error:
                    raise TransportRefused(number, f"{error}. Another program wrote to the topic: find out which") from error

    def begin(self) -> Iterator[Outcome]:
        """Fence all earlier callers. No requeue is ever incomplete here: without a commit it did not happen."""
        self._requeue = KafkaRequeue(self._settings, self._route, self._sign)
        self._ends = self._reader.decided_ends()
        return iter(())

    def requeue(self, letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        return self._ordering().requeue(letters)

    def close(self) -> None:
        for each in (self._requeue, self._reader):
            with suppress(ResequencerError):
                if each is not None:
                    each.close()

    def _ordering(self) -> KafkaRequeue:
        assert self._requeue is not None, "begin comes first"
        return self._requeue

    def _records(self) -> Iterator[tuple[str, Any, Headers]]:
        self._seek()
        for name, records in self._reader.read(self._ends):
            for each in records:
                number = str(OutputNumber(Partition(*name), each.offset))
                yield number, each, tuple((header, value or b"") for header, value in each.headers or ())

    def _seek(self) -> None:
        since, numbers, _ = self._asked_for
        if numbers:
            self._reader.seek_only(_places(self._ends, numbers))
        elif since is not None:
            self._reader.seek_instant(max(0, since - _EARLIER_MS))
        else:
            self._reader.seek_beginnings()

    def _warn(self, number: str, problem: ValueError) -> None:
        if number not in self._warned and len(self._warned) < _MAX_WARNED:
            self._warned.add(number)
            _LOG.warning("%s is skipped, for it is no dead letter: %s", number, problem)


def _places(ends: Mapping[TopicPartition, int], numbers: Iterable[str]) -> dict[Partition, int]:
    """Return the lowest offset among the numbers for each partition that they name."""
    known, places = {Partition(*name) for name in ends}, dict[Partition, int]()
    for partition, offset in filter(None, map(OutputNumber.find, numbers)):
        if partition in known:
            places[partition] = min(places.get(partition, offset), offset)
    return places
