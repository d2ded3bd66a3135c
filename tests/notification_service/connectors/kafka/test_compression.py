"""Each compression of Kafka is read and written, also in batches that are larger than a client's buffers."""

import pytest

from tests.notification_service.connectors.kafka.stage import KafkaStage, notification, values_of

pytestmark = pytest.mark.slow

CODECS = ["gzip", "snappy", "lz4", "zstd"]
VALUES = [b"%d " % number * 500 for number in range(1_000)]
"""About 2 MB: more than a decoder returns at once."""


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_are_read(stage: KafkaStage, codec: str) -> None:
    stage.send(*VALUES, compression_type=codec, batch_size=4 << 20, max_request_size=8 << 20, linger_ms=10_000)
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) >= len(VALUES), "the records", worker)
    assert worker.values() == VALUES


@pytest.mark.parametrize("codec", CODECS)
def test_notifications_leave_compressed(stage: KafkaStage, codec: str) -> None:
    worker = stage.worker(producer={"compression.type": codec})
    stage.settle(worker)
    worker.publish(stage.partitions[0], *[notification(number, value) for number, value in enumerate(VALUES)])
    assert values_of(stage.outputs()) == VALUES
