"""Gives orders to the owner of a partition, and finds their outcomes."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from time import monotonic

from guardian.ports import OrderRecord
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.producer import IdempotentProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.connectors.kafka.topics import Topics
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, DirectOutcome, decode, encode
from notification_service.delivery.errors import OrderRefused
from resequencer.record import Partition

_LOOK_SECONDS = 0.2
_FOR_EVER = "-1"


class OrderTopic:
    """Orders for the partitions of one receiver's source. `settings` are those of its first stage."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._topic = settings, settings.topics.orders

    def give(self, partition: Partition, order: DirectOrder) -> int:
        """Write the order durably, and return its offset.

        Raises:
            OrderRefused: The source has no such partition, or a pause would end because the topic does not keep all orders.
            TransportUnavailable, TransportRefused: It is not known whether the order was written.
        """
        if partition.topic != self._settings.topics.input:
            raise OrderRefused(f"{partition} is no partition of {self._settings.topics.input}")
        if order.order is DirectOrderKind.PAUSE:
            self._refuse_deleting()
        with closing(IdempotentProducer(self._topic, self._settings)) as producer:
            if partition.number not in producer.partitions(self._topic):
                raise OrderRefused(f"{partition} does not exist")
            record = ProducerRecord(self._topic, order.id.encode(), (), encode(order), partition.number)
            return producer.append(record, self._settings.call_timeout_ms / 1_000)

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that the source has now."""
        source = self._settings.topics.input
        with closing(IdempotentProducer(source, self._settings)) as producer:
            return [Partition(source, each) for each in sorted(producer.partitions(source))]

    def _refuse_deleting(self) -> None:
        with closing(Topics(self._settings)) as topics:
            for key in ("retention.ms", "retention.bytes"):
                if (found := topics.find_setting(self._topic, key)) not in (None, _FOR_EVER):
                    problem = f"{key} of topic {self._topic} is {found}, so the pause would end when its order is deleted"
                    raise OrderRefused(f"{problem}: set it to {_FOR_EVER}")

    def wait_for_outcome(
        self, partition: Partition, order: DirectOrder, offset: int, seconds: float, pause: Callable[[float], object]
    ) -> DirectOutcome | None:
        """Return the outcome of the order at `offset`; None if it has none after so many seconds."""
        place = Partition(self._topic, partition.number)
        until = monotonic() + seconds
        with closing(CommittedReader(self._settings, [self._topic], {partition.number})) as reader:
            while True:
                reader.seek_only({place: offset})
                for _, records in reader.read(reader.ends()):
                    for each in records:
                        with suppress(ValueError):
                            found = decode(each.value or b"")
                            if isinstance(found, DirectOutcome) and found.id == order.id:
                                return found
                if monotonic() > until:
                    return None
                pause(_LOOK_SECONDS)


class OrderLog:
    """The orders for a receiver as a whole, and how long its topics keep records. `settings` are those of its first stage.

    Nothing is connected before the first call; any call may raise TransportUnavailable or TransportRefused.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._place = settings, Partition(settings.topics.orders, 0)
        self._reader: CommittedReader | None = None

    def read(self, after: int) -> tuple[Sequence[OrderRecord], int]:
        """Return what the first partition holds from an offset on, and its present end.

        From the beginning on (0) it is everything that was written before the call.
        """
        try:
            return self._read(after)
        except BaseException:
            self.close()
            raise

    def find_retentions(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Return for how many ms these topics keep their records; none for those of which it is not known, or for ever."""
        with closing(Topics(self._settings)) as found:
            texts = {each: found.find_setting(each, "retention.ms") for each in topics}
        return {topic: int(text) for topic, text in texts.items() if text not in (None, _FOR_EVER)}

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _read(self, after: int) -> tuple[Sequence[OrderRecord], int]:
        if self._reader is None:
            self._reader = CommittedReader(self._settings, [self._place.topic], {self._place.number})
        reader = self._reader
        ends = reader.ends() if after else reader.decided_ends()
        end = max(ends.values())
        if end <= after:
            return [], end
        reader.seek_only({self._place: after})
        found = [each for _, records in reader.read(ends) for each in records]
        return [OrderRecord(each.offset, each.value or b"") for each in found], end
