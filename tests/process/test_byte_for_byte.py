"""What passes through on Kafka leaves byte for byte as it came, though it has waited in a storage and the worker was killed."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService, kafka_overrides
from harness.waiting import wait_until
from kafka import KafkaConsumer

from tests.notification_service.connectors.kafka.raw_batches import batch, record, send_batch
from tests.notification_service.connectors.kafka.stage import read_to_end

if TYPE_CHECKING:
    from servers.kafka import KafkaServer
    from servers.redis import RedisServer

pytestmark = pytest.mark.slow

UNITS, EACH, PARTITIONS = 12, 6, 4
KEYS = (None, b"", b"\xff\x00key", b"key")
VALUES = (None, b"", b"\x00\xff\r\n", b'{"a": 1}', b"x" * 70_000)
FIRST_MS = 1_000
Headers = list[tuple[str, bytes | None]]


def headers_of(unit: int, version: int) -> Headers:
    """Return the headers that a record comes with: also of another resequencer, repeated, empty, null and not UTF-8."""
    ours = [("unit", b"unit-%d" % unit), ("version", b"%d" % version)]
    others: Headers = [("a", b"1"), ("a", b"\xff\xfe"), ("\u00fc", b""), ("null", None), ("source-position", b"UPSTREAM-0@1")]
    return [*others[: (unit + version) % 6], *ours]


def send(bootstrap: str, topic: str, chance: random.Random, versions: Iterable[int]) -> list[tuple[Any, ...]]:
    """Send these versions of all units out of order, each unit's to its partition; return what was sent."""
    sent = []
    for partition in range(PARTITIONS):
        wanted = [(unit, version) for unit in range(partition, UNITS, PARTITIONS) for version in versions]
        chance.shuffle(wanted)
        records = []
        for place, (unit, version) in enumerate(wanted):
            key, value, headers = chance.choice(KEYS), chance.choice(VALUES), headers_of(unit, version)
            later_ms = chance.randrange(10**12)
            raw = [(name.encode(), data) for name, data in headers]
            records.append(record(place, value, *raw, key=key, later_ms=later_ms))
            sent.append((key, value, tuple((name, data or b"") for name, data in headers), FIRST_MS + later_ms))
        send_batch(bootstrap, topic, batch(records), partition)
    return sent


def own(each: Any) -> tuple[Any, ...]:
    """Return what came in: without our headers behind it."""
    return (
        each.key,
        each.value,
        tuple(header for header in each.headers if not header[0].startswith("resequencer-")),
        each.timestamp,
    )


def digest(records: Iterable[tuple[Any, ...]]) -> str:
    return sha256("\n".join(sorted(map(repr, records))).encode()).hexdigest()


@pytest.mark.parametrize("storage", ["embedded", "redis"])
def test_the_digest_of_what_leaves_is_that_of_what_came(
    new_service: Callable[..., OperatedService],
    kafka: KafkaServer,
    request: pytest.FixtureRequest,
    fresh_name: Callable[[str], str],
    storage: str,
) -> None:
    source, output, dead = topics = [fresh_name(each) for each in ("in", "out", "dead")]
    kafka.create_topics(*topics, partitions=PARTITIONS, config={"retention.ms": "-1"})
    settings = [f"{RESEQUENCER}.storage-type={storage}"]
    if storage == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        settings += [f'{NOTIFICATION}.storage.redis.url="{server.url}"', f"{NOTIFICATION}.storage.namespace={fresh_name('ns')}"]
    service = new_service(
        *kafka_overrides(kafka.bootstrap, *topics, fresh_name("group")),
        f"{NOTIFICATION}.handler=pass-through",
        f"{NOTIFICATION}.aggregation.enabled=false",
        f'{INGRESS}.events {{ format = mapped, mapped.unit = "header:unit", mapped.sequence = "header:version" }}',
        f"{RESEQUENCER} {{ strategy = SEQUENCE, stash-timeout = 10m }}",
        *settings,
    )
    chance = random.Random(storage)
    sent = send(kafka.bootstrap, source, chance, range(2, EACH + 1))
    service.start()
    service.wait_for_report(lambda report: report.units.stashed_envelopes == UNITS * (EACH - 1), "they wait")
    service.kill()
    sent += send(kafka.bootstrap, source, chance, [1])
    service.start_and_wait()
    options = {"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(bootstrap_servers=kafka.bootstrap, **options)) as reader:
        left = wait_until(
            lambda: len(found := read_to_end(reader, output)) >= UNITS * EACH and found, "all leave", look_seconds=0.2
        )
        assert service.stop() == 0
        assert read_to_end(reader, dead) == []
    assert digest(map(own, left)) == digest(sent)
    by_unit = defaultdict(list)
    for each in left:
        named = dict(each.headers)
        by_unit[named["resequencer-unit-of-work"], each.partition].append(int(named["version"]))
    assert {unit for unit, _ in by_unit} == {b"unit-%d" % unit for unit in range(UNITS)}
    assert all(versions == sorted(set(versions)) for versions in by_unit.values())


@pytest.mark.parametrize("key", [None, b"key"])
def test_an_envelope_without_a_value_is_a_dead_letter_that_is_requeued_as_it_came(
    new_service: Callable[..., OperatedService], kafka: KafkaServer, fresh_name: Callable[[str], str], key: bytes | None
) -> None:
    source, _, dead = topics = [fresh_name(each) for each in ("in", "out", "dead")]
    kafka.create_topics(*topics, partitions=2, config={"retention.ms": "-1"})
    service = new_service(*kafka_overrides(kafka.bootstrap, *topics, fresh_name("group")))
    send_batch(kafka.bootstrap, source, batch([record(0, None, (b"a", b"1"), (b"a", b"\xff"), key=key)]), 1)
    service.start()
    service.wait_for_report(lambda report: report.dead_letters == {"undecodable": 1}, "it is a dead letter")
    options = {"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(bootstrap_servers=kafka.bootstrap, **options)) as reader:
        (letter,) = wait_until(lambda: read_to_end(reader, dead), "it is published", look_seconds=0.2)
        assert (letter.key, letter.value, letter.headers[:2]) == (key, None, [("a", b"1"), ("a", b"\xff")])
        assert dict(letter.headers)["dead-letter-error"] == b"it has no value"
        number = f"{dead}-{letter.partition}#{letter.offset}"
        assert "no value (null)" in service.verb("dead-letters", "show", number).stdout
        assert json.loads(service.verb("dead-letters", "show", number, "--json").stdout)["value"] is None
        assert ": requeued, now at " in service.verb("dead-letters", "requeue", number).stdout
        sent, again = wait_until(lambda: len(found := read_to_end(reader, source)) == 2 and found, "it is requeued")
    assert (again.partition, again.key, again.value) == (sent.partition, key, None)
    assert again.headers == [("a", b"1"), ("a", b"\xff"), ("requeued-from", number.encode())]
    service.wait_for_report(lambda report: report.dead_letters == {"undecodable": 2}, "it is a dead letter again")
    assert service.stop() == 0
