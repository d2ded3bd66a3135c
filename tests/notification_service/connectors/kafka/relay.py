"""A process that publishes each input record as a notification: a worker without state.

    python -m tests.notification_service.connectors.kafka.relay SETTINGS     # JSON: bootstrap, topics, group, slot

Output that the group refused stays pending. It leaves after the rebalance if its partition is still owned; otherwise it is
dropped, because the next owner reads the records again.
"""

import json
import logging
import sys
from collections.abc import Callable
from typing import Any

from harness.waiting import wait_ms

from guardian.ports import PartitionOutput, Polled, Position, PublishRefused, TransportUnavailable
from resequencer.record import Partition
from tests.notification_service.connectors.kafka.stage import KafkaWorker, notification, settings_of


class Relay:
    def __init__(self, worker: KafkaWorker) -> None:
        self._worker = worker
        self._pending: dict[Partition, PartitionOutput] = {}
        self._count = 0

    def run(self) -> None:
        while True:
            _patiently(self._worker.follow)
            self._pending = {each: output for each, output in self._pending.items() if each in self._worker.read_to}
            if not self._pending:
                self._take(_patiently(lambda: self._worker.transport.poll(200, 200)))
            self._publish()

    def _take(self, polled: Polled) -> None:
        for partition, offset in polled.next_offsets.items():
            if partition not in self._worker.read_to:
                continue
            self._count += 1
            records = [each for each in polled.records if each.origin.partition == partition]
            records = tuple(notification(number, each.value, each.key) for number, each in enumerate(records))
            position = Position(offset, f"{self._worker.settings.transactional_id} {self._count}")
            self._pending[partition] = PartitionOutput(partition, records, position)

    def _publish(self) -> None:
        if not self._pending:
            return
        outputs = list(self._pending.values())
        try:
            _patiently(lambda: self._worker.transport.publish(outputs))
        except PublishRefused:
            _patiently(lambda: self._worker.transport.poll(0, 200))
        else:
            self._pending = {}


def _patiently(call: Callable[[], Any]) -> Any:
    while True:
        try:
            return call()
        except TransportUnavailable as error:
            logging.warning("away: %s", error)
            wait_ms(100)  # Not to ask without a pause while the broker is away.


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    given = json.loads(sys.argv[1])
    quick = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 300, "default.api.timeout.ms": 2_000}
    settings = settings_of(
        given["bootstrap"], given["topics"], given["group"], given["slot"], quick, {"transaction.timeout.ms": 3_000}
    )
    Relay(KafkaWorker(settings)).run()
