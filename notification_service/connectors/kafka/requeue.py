"""Sends dead letters back to the topic that reads them again, in one transaction with the notes about it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, NoReturn, TypeVar

from kafka import errors

from guardian.headers import SOURCE_POSITION, own_texts
from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.dead_letters.actions import Action, Requeued, StoredDeadLetter
from notification_service.connectors.dead_letters.port import DeadLettersInUse, Outcome, Sign, portions
from notification_service.connectors.kafka.client import text_of, to_transport_error, translated
from notification_service.connectors.kafka.core.records import ProducerRecord, note_of, size_of
from notification_service.connectors.kafka.core.size_limits import refused_for_size
from notification_service.connectors.kafka.producer import FENCED, NotTaken, Place, TransactionalProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Headers, Origin, OutputNumber, Partition

_Actions = TypeVar("_Actions", bound=Sequence[Action])


class RequeueRoute(NamedTuple):
    """Dead letters of topic `origin` are requeued to topic `to`, each to the partition that it came from.

    `headers_of` returns the headers that a record gets there, and `why_not` why it cannot be requeued, None if it can.
    """

    origin: str
    to: str
    headers_of: Callable[[StoredDeadLetter], Headers]
    why_not: Callable[[StoredDeadLetter], str | None]


def route_to_input(topic: str) -> RequeueRoute:
    """Return the route of the service's own dead letters: back to where they came from."""
    return RequeueRoute(topic, topic, lambda dead_letter: dead_letter.headers_to_requeue, _why_not_a_notification)


class KafkaRequeue:
    """Requeues dead letters. All processes use one transactional id per group, so a new object fences the earlier ones."""

    def __init__(self, settings: KafkaSettings, route: RequeueRoute, sign: Sign) -> None:
        self._settings = settings
        self._route = route
        self._sign = sign
        self._producer: TransactionalProducer | None = self._begin()

    def requeue(self, dead_letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        """Requeue those that can be requeued in this order, each portion in one transaction; then its outcomes are yielded.

        Raises:
            DeadLettersInUse: Another process has started requeueing or discarding; nothing more was done here.
            TransportRefused: Nothing more was done: the topic of the dead letters does not accept the note about one, or a right
                is missing.
            TransportUnavailable: Nothing more was done, or the outcome is unknown; reading the topic again shows which.
        """
        for portion in portions(dead_letters):
            yield from self._requeue(portion)

    def _requeue(self, dead_letters: Sequence[StoredDeadLetter]) -> Iterator[Outcome]:
        refused, remaining = list[Outcome](), list[StoredDeadLetter]()
        with translated(self._route.to):
            partitions = len(self._connected().partitions(self._route.to))
        for each in dead_letters:
            problem = self._why_not(each, partitions) or each.find_excess(self._settings.max_value_bytes)
            (remaining.append(each) if problem is None else refused.append(Outcome(each.number, None, problem)))
        while remaining:
            try:
                done = self._sent(remaining)
            except NotTaken as error:
                dead_letter = remaining.pop(error.at)
                refused.append(Outcome(dead_letter.number, None, self._why_not_taken(dead_letter, error)))
            else:
                yield from (Outcome(each.number, each.position, done=each.state) for each in done)
                break
        yield from refused

    def note(self, actions: Sequence[Action]) -> None:
        """Write the notes in one transaction. Raises as `requeue`."""
        self._transaction([], lambda _: actions)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _sent(self, dead_letters: Sequence[StoredDeadLetter]) -> Sequence[Requeued]:
        def done(places: Sequence[Place]) -> Sequence[Requeued]:
            sign = self._sign()
            return [
                each.requeueing(*sign, place.number, offset).ended(*sign, str(Origin(place, offset)))
                for each, (place, offset) in zip(dead_letters, places, strict=True)
            ]

        return self._transaction([self._record_of(each) for each in dead_letters], done)

    def _record_of(self, dead_letter: StoredDeadLetter) -> ProducerRecord:
        record, number = dead_letter.letter.record, dead_letter.letter.record.origin.partition.number
        headers = self._route.headers_of(dead_letter)
        return ProducerRecord(self._route.to, record.key, headers, dead_letter.value_to_requeue, number)

    def _why_not(self, dead_letter: StoredDeadLetter, partitions: int) -> str | None:
        """Return why the dead letter cannot be requeued, or None if it can."""
        if (problem := self._route.why_not(dead_letter)) is not None:
            return problem
        (name, number), route = dead_letter.letter.record.origin.partition, self._route
        if name != route.origin:
            return f"it came from topic {name}, but the service reads {route.origin} now"
        return f"it came from partition {number}, but {route.to} has only {partitions}" if number >= partitions else None

    def _why_not_taken(self, dead_letter: StoredDeadLetter, error: NotTaken) -> str:
        topic = self._route.to
        size = size_of(dead_letter.letter.record.key, self._route.headers_of(dead_letter), dead_letter.value_to_requeue)
        with closing(Topics(self._settings)) as topics:
            limit = min(self._settings.max_request_bytes, topics.limits(topic)[topic])
        remedy = "Raise the topic's max.message.bytes and the producer's max.request.size"
        return f"{topic} does not accept it: it takes {size} bytes, the limit is {limit} ({error}). {remedy}"

    def _send_notes(self, producer: TransactionalProducer, actions: Sequence[Action]) -> None:
        """Send the note of each action to the partition of its dead letter."""
        topic = self._settings.topics.dead_letters
        notes = [note_of(topic, each)._replace(partition=_partition_of(each.number).number) for each in actions]
        try:
            producer.send(notes)
            producer.wait()
        except NotTaken as error:
            if not error.is_too_large:
                raise to_transport_error(f"topic {topic}", error.error) from error
            note = notes[error.at]
            size = size_of(note.key, note.headers, note.value)
            problem = f"it does not accept a note of {size} bytes ({text_of(error.error)}), and nothing was done"
            raise refused_for_size(topic, problem) from error

    def _transaction(self, records: Sequence[ProducerRecord], done: Callable[[Sequence[Place]], _Actions]) -> _Actions:
        """Send the records, and then the notes of what is `done` with them there, in one transaction; return what is done.

        After a failure the producer is discarded, and a new one aborts the open transaction.
        """
        producer = self._connected()
        try:
            producer.begin(records)
            producer.wait()
            actions = done(producer.places())
            self._send_notes(producer, actions)
            producer.end()
        except NotTaken as error:
            self._discard()
            if not error.is_too_large:
                self._give_up(error.error)
            self._producer = self._begin()
            raise
        except errors.KafkaError as error:
            self._discard()
            self._give_up(error)
        except BaseException:
            self._discard()
            raise
        return actions

    def _give_up(self, error: errors.KafkaError) -> NoReturn:
        if isinstance(error, FENCED) or any(each.__name__ in str(error) for each in FENCED):
            raise DeadLettersInUse from error
        problem = to_transport_error(self._route.to, error)
        if isinstance(problem, TransportRefused):
            raise problem from error
        text = f"it is unknown whether the last dead letters were done ({text_of(error)})"
        raise TransportUnavailable(f"{text}: repeat the command; it finds out, and does what remains, once") from error

    def _begin(self) -> TransactionalProducer:
        options = {**self._settings.producer, "transactional_id": f"{self._settings.group_id}.dead-letters"}
        return TransactionalProducer(options, self._settings.transaction_timeout_ms, "the dead letters")

    def _discard(self) -> None:
        producer, self._producer = self._connected(), None
        producer.discard()

    def _connected(self) -> TransactionalProducer:
        assert self._producer is not None, "not usable after a failure: a new producer would fence a process that started since"
        return self._producer


def _partition_of(number: str) -> Partition:
    found = OutputNumber.find(number)
    assert found is not None, "a stored dead letter's number names its partition"
    return found.partition


def _why_not_a_notification(dead_letter: StoredDeadLetter) -> str | None:
    letter = dead_letter.letter
    # A record that another resequencer has sent has such headers, too, but of another position.
    is_ours = own_texts(letter.record.headers).get(SOURCE_POSITION) == str(letter.record.origin)
    if letter.reason is DeadLetterReason.TOO_LARGE and is_ours:
        text = "it is a notification that its topic refused: raise the topic's max.message.bytes, and send the record yourself"
        return f"{text} (show --raw)"
    return None
