"""The ten lines of the README that put a topic of one's own in order."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from harness.packages import ROOT
from harness.processes.operated_service import OperatedService
from harness.waiting import DEADLINE_SECONDS, wait_until
from kafka import KafkaConsumer, KafkaProducer

from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import read_to_end

pytestmark = pytest.mark.slow

VALUES = (b"\x00\xff no JSON", b"{}", b'{\n  "is": "sent"\n}')


def test_a_topic_is_put_in_order_by_ten_lines(
    new_service: Callable[..., OperatedService], kafka: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = fresh_name("orders")
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("### Events of your own")[2]
    found = re.search(r"```hocon\n(.*?)```", page, re.DOTALL)
    assert found is not None
    lines = found[1].replace("orders", name).replace("localhost:9092", kafka.bootstrap)
    assert lines.count("\n") == 10
    (tmp_path / "orders.conf").write_text(lines, encoding="utf-8")
    topics = [name, f"{name}-in-order", f"{name}-dead-letters"]
    kafka.create_topics(*topics, partitions=2)
    service = new_service(config="orders.conf")
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for version in (2, 3, 1, 1):
            headers = [("version", str(version).encode()), ("source", b"\xff")]
            producer.send(name, VALUES[version - 1], b"order-1", headers=headers, partition=1).get(timeout=DEADLINE_SECONDS)
        producer.send(name, b"without a number", b"order-1", partition=1).get(timeout=DEADLINE_SECONDS)
    service.start()
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=kafka.bootstrap, **options)) as reader:
        wait_until(lambda: len(read_to_end(reader, topics[2])) == 1, "the dead letter")
        wait_until(lambda: len(read_to_end(reader, topics[1])) == len(VALUES), "all are published")
        assert service.stop() == 0
        published = read_to_end(reader, topics[1])
    assert [(each.key, each.value, each.headers[:2]) for each in published] == [
        (b"order-1", value, [("version", str(number).encode()), ("source", b"\xff")]) for number, value in enumerate(VALUES, 1)
    ]
    assert {each.headers[2][0] for each in published} == {"resequencer-notification-id"}
