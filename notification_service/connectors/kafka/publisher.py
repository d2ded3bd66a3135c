"""Publishes under the protocol: finds out the outcome of a transaction before the next one.

Steps 16 to 19 of the protocol (docs/decisions/0004-exactly-once.md).
"""

import logging
from collections.abc import Mapping, Sequence
from time import monotonic

from kafka import errors

from guardian.ports import NotPublished, PublishRefused, TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.client import text_of, to_transport_error
from notification_service.connectors.kafka.consumer import as_group_metadata
from notification_service.connectors.kafka.core.fencing import FIXED, Committed, Fences, Fencing
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.producer import FENCED, NotTaken, TransactionalProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.connectors")


class Publisher:
    """Holds the producer and the undecided positions. `attempts` counts the calls that may have moved positions."""

    def __init__(self, settings: KafkaSettings, log: LogReader, fencing: Fencing) -> None:
        self._settings = settings
        self._log = log
        self._fencing = fencing
        self._producer: TransactionalProducer | None = None
        self._undecided: dict[Partition, Committed] = {}
        self._committed: dict[Partition, Committed] = {}
        self._failed: dict[Partition, Committed] = {}
        self._fences = Fences()
        self.attempts = 0

    def connect(self) -> TransactionalProducer:
        """Return the producer; make it first if there is none, which ends a predecessor's open transaction.

        Raises:
            TransportUnavailable, TransportRefused: The producer could not be made.
        """
        if self._producer is None:
            self._producer = TransactionalProducer(self._settings.producer, self._settings.transaction_timeout_ms)
            self.attempts += 1
        return self._producer

    def fence(self) -> None:
        """Make a new producer, which fences every earlier one of the same transactional id. The outcome may be unknown then."""
        if self._producer is not None:
            self._discard(self._producer)
        self.connect()

    def resolve(self) -> None:
        """Find out how the last transaction ended, if that is unknown.

        A new producer is made first, then the positions are read. Before that, the old producer's commit may still arrive.

        Raises:
            TransportUnavailable: The outcome is still unknown.
        """
        if not self._undecided:
            return
        self.connect()
        found = {each: self._log.position(each, self.asked_under()) for each in self._undecided}
        for partition, tried in self._undecided.items():
            self._resolve(partition, tried, found[partition])
        self._undecided = {}

    def is_committed(self, partition: Partition, position: Committed) -> bool:
        """Return whether this position, after an unknown outcome, turned out to be committed."""
        return self._committed.get(partition) == position

    def take_failed(self, positions: Mapping[Partition, Committed]) -> bool:
        """Return whether one of these positions, after an unknown outcome, turned out not to be committed; reports it once."""
        failed, self._failed = self._failed, {}
        return any(failed.get(each) == position for each, position in positions.items())

    def commit(self, records: Sequence[ProducerRecord], positions: Mapping[Partition, Committed]) -> None:
        """Commit one transaction under the current membership. Call `resolve` first.

        Raises:
            NotTaken: One record was refused for good; nothing was committed.
            PublishRefused: The group has rebalanced; nothing was committed.
            NotPublished: The transaction failed; nothing was committed.
            TransportUnavailable: The outcome is unknown.
            TransportRefused: Two workers use the same transactional id, or a right is missing.
        """
        assert not self._undecided
        membership = self._fencing.membership
        if membership is None or (membership.generation < 0 and membership != FIXED):
            raise PublishRefused("not a member of the group")
        producer = self.connect()
        self.attempts += 1
        for each in positions:
            self._committed.pop(each, None)
        try:
            producer.commit(records, positions, as_group_metadata(self._settings.group_id, membership))
        except NotTaken:
            self._discard(producer)
            raise
        except (errors.CommitFailedError, errors.FencedInstanceIdError) as error:
            self._discard(producer)
            raise PublishRefused(text_of(error)) from error
        except errors.KafkaError as error:
            self._undecided = dict(positions)
            self._discard(producer)
            self._recover(positions, error)
        except BaseException:
            self._undecided = dict(positions)
            self._discard(producer)
            raise
        else:
            for partition, position in positions.items():
                self._fencing.note_position(partition, position)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _recover(self, positions: Mapping[Partition, Committed], error: errors.KafkaError) -> None:
        """Find out the outcome after an error. Returns if the transaction was committed in spite of the error, else raises."""
        _LOG.warning("the outcome of a Kafka transaction is unknown and is looked up before the next one: %s", text_of(error))
        self._refuse_twins(error)
        self.resolve()
        if all(self.is_committed(*each) for each in positions.items()):
            return
        if lost := self._fencing.not_owned(positions):
            raise PublishRefused(f"another worker has moved the position of {', '.join(map(str, lost))}")
        self._failed = {}
        problem = to_transport_error("the output", error)
        raise (NotPublished(str(problem)) if isinstance(problem, TransportUnavailable) else problem) from error

    def _resolve(self, partition: Partition, tried: Committed, found: Committed | None) -> None:
        before = self._fencing.find_position(partition)
        if found == tried != before:
            self._fencing.note_position(partition, tried)
            self._committed[partition] = tried
        elif self._fencing.compare(partition, found):
            self._failed[partition] = tried

    def _refuse_twins(self, error: errors.KafkaError) -> None:
        if not isinstance(error, FENCED):
            return
        now = monotonic()
        self._fences.note(now)
        if self._fences.has_twin(now):
            cause = "two services share one run directory, or it was copied. Give each its own"
            if self._fencing.membership == FIXED:
                cause = "kafka.partitions of two workers names the same partition. Give each its own"
            problem = f"another worker uses it: {cause}"
            raise TransportRefused(f"transactional id {self._settings.transactional_id}", problem)

    def _discard(self, producer: TransactionalProducer) -> None:
        producer.discard()
        self._producer = None

    def asked_under(self) -> tuple[object, int]:
        return self._fencing.membership, self.attempts
