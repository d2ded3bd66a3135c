"""Sends dead letters back to the topic that reads them again, in one transaction with the notes about it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from time import monotonic
from typing import Any, NamedTuple, NoReturn

from kafka import KafkaProducer, errors

from guardian.headers import NOTIFICATION_ID
from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.dead_letters.actions import Action, Edited, Requeued, StoredDeadLetter
from notification_service.connectors.dead_letters.port import DeadLettersInUse, Outcome, Sign, Signature
from notification_service.connectors.kafka.client import Bounded, make_client, text_of, to_transport_error, translated
from notification_service.connectors.kafka.core.records import note_of, size_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from resequencer.record import Headers, Origin, OutputNumber, Partition

_CLOSE_SECONDS = 5
_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
_NEVER_TAKEN = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)


class _NotTaken(Exception):
    """The topic will never accept the dead letter at index `at`."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__(str(error))
        self.at = at


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
    return RequeueRoute(topic, topic, lambda letter: letter.headers_to_requeue, _why_not_a_notification)


class KafkaRequeue:
    """Requeues dead letters. All processes use one transactional id per group, so a new object fences the earlier ones."""

    def __init__(self, settings: KafkaSettings, route: RequeueRoute, sign: Sign) -> None:
        self._settings = settings
        self._route = route
        self._sign = sign
        self._producer: KafkaProducer | None = None
        self._begin()

    def requeue(self, letters: Sequence[StoredDeadLetter]) -> Iterator[Outcome]:
        """Requeue in one transaction all letters that can be requeued.

        Raises:
            DeadLettersInUse: Another process has started requeueing or discarding; nothing was done here.
            TransportUnavailable: Nothing was done, or the outcome is unknown; reading the topic again shows which.
        """
        refused, left = list[Outcome](), list[StoredDeadLetter]()
        partitions = len(self._partitions())
        for each in letters:
            problem = self._why_not(each, partitions) or each.find_excess(self._settings.max_value_bytes)
            (left.append(each) if problem is None else refused.append(Outcome(each.number, None, problem)))
        while left:
            try:
                done = self._sent(left)
            except _NotTaken as error:
                letter = left.pop(error.at)
                refused.append(Outcome(letter.number, None, self._why_not_taken(letter, error)))
            else:
                yield from (Outcome(each.number, each.position, done=each.state) for each in done)
                break
        yield from refused

    def note(self, actions: Sequence[Action]) -> None:
        """Write the notes in one transaction. Raises as `requeue`."""
        self._within_transaction(lambda: self._send_notes(actions))

    def close(self) -> None:
        producer, self._producer = self._producer, None
        self._bounded.close()
        if producer is not None:
            with suppress(errors.KafkaError):
                producer.close(timeout=_CLOSE_SECONDS)

    def _sent(self, letters: Sequence[StoredDeadLetter]) -> list[Requeued]:
        def send() -> list[Requeued]:
            futures = [self._send_letter(at, each) for at, each in enumerate(letters)]
            self._flush(futures)
            places = [_arrived(at, future) for at, future in enumerate(futures)]
            sign = self._sign()
            done = [
                _done(each, sign, Origin(Partition(place.topic, place.partition), place.offset))
                for each, place in zip(letters, places, strict=True)
            ]
            self._send_notes(done)
            return done

        return self._within_transaction(send)  # type: ignore[no-any-return]  # What `send` returns.

    def _send_letter(self, at: int, letter: StoredDeadLetter) -> Any:
        record, headers = letter.letter.record, list(self._route.headers_of(letter))
        number = record.origin.partition.number
        try:
            return self._connected().send(self._route.to, letter.value_to_requeue, record.key, headers, number)
        except errors.MessageSizeTooLargeError as error:
            raise _NotTaken(at, error) from error

    def _why_not(self, letter: StoredDeadLetter, partitions: int) -> str | None:
        """Return why the dead letter cannot be requeued, or None if it can."""
        if (problem := self._route.why_not(letter)) is not None:
            return problem
        (name, number), route = letter.letter.record.origin.partition, self._route
        if name != route.origin:
            return f"it came from topic {name}, but the service reads {route.origin} now"
        return f"it came from partition {number}, but {route.to} has only {partitions}" if number >= partitions else None

    def _why_not_taken(self, letter: StoredDeadLetter, error: _NotTaken) -> str:
        topic = self._route.to
        size = size_of(letter.letter.record.key, self._route.headers_of(letter), letter.value_to_requeue)
        with closing(Topics(self._settings)) as topics:
            limit = min(self._settings.max_request_bytes, topics.limits(topic)[topic])
        remedy = "Raise the topic's max.message.bytes and the producer's max.request.size"
        return f"{topic} does not accept it: it takes {size} bytes, the limit is {limit} ({error}). {remedy}"

    def _send_notes(self, actions: Sequence[Action]) -> None:
        """Send each note to the partition of its dead letter, and wait until all have arrived."""
        futures = []
        for each in actions:
            note, partition = note_of(self._settings.topics.dead_letters, each), _partition_of(each.number)
            futures.append(self._connected().send(note.topic, note.value, note.key, list(note.headers), partition.number))
        self._flush(futures)
        for future in futures:
            future.get(timeout=0)

    def _flush(self, futures: Sequence[Any]) -> None:
        """Flush until all futures are done: the client's flush ends early if a batch is split."""
        while not all(future.is_done for future in futures):
            with suppress(errors.UnknownError):
                self._connected().flush()

    def _within_transaction(self, send: Callable[[], Any]) -> Any:
        """Run `send` in a transaction. After a failure the producer is discarded, and a new one aborts the open transaction."""
        limit_ms = self._settings.transaction_timeout_ms
        until = monotonic() + limit_ms / 1000
        try:
            self._connected().begin_transaction()
            sent = self._bounded.call(send, limit_ms)
            self._bounded.call(self._connected().commit_transaction, max(1, round((until - monotonic()) * 1000)))
        except _NotTaken:
            self.close()
            self._begin()
            raise
        except errors.KafkaError as error:
            self._give_up(error)
        return sent

    def _give_up(self, error: errors.KafkaError) -> NoReturn:
        self.close()
        if isinstance(error, _FENCED) or any(each.__name__ in str(error) for each in _FENCED):
            raise DeadLettersInUse from error
        problem = to_transport_error(self._route.to, error)
        if isinstance(problem, TransportRefused):
            raise problem from error
        text = f"it is unknown whether the last dead letters were done ({text_of(error)})"
        raise TransportUnavailable(f"{text}: repeat the command; it finds out, and does the rest once") from error

    def _begin(self) -> None:
        own = {"transactional_id": f"{self._settings.group_id}.dead-letters"}
        self._bounded = Bounded()
        self._producer = make_client("the dead letters", KafkaProducer, {**self._settings.producer, **own})
        with translated("the dead letters"):
            self._connected().init_transactions()

    def _connected(self) -> KafkaProducer:
        assert self._producer is not None, "not usable after a failure: a new producer would fence a process that started since"
        return self._producer

    def _partitions(self) -> set[int]:
        with translated(self._route.to):
            return set(self._connected().partitions_for(self._route.to))


def _arrived(at: int, future: Any) -> Any:
    if future.failed() and isinstance(future.exception, _NEVER_TAKEN):
        raise _NotTaken(at, future.exception)
    return future.get(timeout=0)


def _done(letter: StoredDeadLetter, sign: Signature, origin: Origin) -> Requeued:
    (by, at), edit, position = sign, letter.edit, str(origin)
    if edit is None:
        return Requeued(number=letter.number, letter=letter.digest, by=by, at=at, position=position)
    return Edited(
        number=letter.number,
        letter=letter.digest,
        by=by,
        at=at,
        position=position,
        because=edit.because,
        original_sha256=letter.sha256,
        edited_sha256=edit.sha256,
        proposed_by=edit.proposed_by,
    )


def _partition_of(number: str) -> Partition:
    found = OutputNumber.find(number)
    assert found is not None, "a stored dead letter's number names its partition"
    return found.partition


def _why_not_a_notification(letter: StoredDeadLetter) -> str | None:
    if NOTIFICATION_ID in dict(letter.letter.record.headers):
        text = "it is a notification that its topic refused: raise the topic's max.message.bytes, and send the record yourself"
        return f"{text} (show --raw)"
    return None
