"""Batches in Kafka's message format 2, byte by byte: of other clients, damaged by a disk, or sent by no client."""

import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from harness.waiting import DEADLINE_SECONDS
from kafka import KafkaProducer
from kafka.codec import gzip_encode
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from servers.kafka import KafkaServer

RawName = bytes | None
GZIP = 1


def varint(value: int) -> bytes:
    """Encode in zigzag, seven bits per byte, the lowest bits first."""
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def part(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    place: int,
    value: bytes | None = b"v",
    *headers: tuple[RawName, bytes | None],
    key: bytes | None = b"k",
    attributes: int = 0,
    behind: bytes = b"",
    later_ms: int = 0,
) -> bytes:
    """Encode a record with its length in front; `behind` are additional bytes at its end. Its time is that of the batch and
    `later_ms`.
    """
    encoded = b"".join(part(name) + part(data) for name, data in headers)
    body = (
        bytes([attributes]) + varint(later_ms) + varint(place) + part(key) + part(value) + varint(len(headers)) + encoded + behind
    )
    return varint(len(body)) + body


def batch(records: Sequence[bytes], *, last: int | None = None, count: int | None = None, codec: int = 0, base: int = 0) -> bytes:
    """Encode a batch. `last` is the offset of the last record relative to the first."""
    body = b"".join(records)
    if codec == GZIP:
        body = gzip_encode(body)
    count = len(records) if count is None else count
    last = count - 1 if last is None else last
    covered = struct.pack(">hiqqqhii", codec, last, 1_000, 1_000, -1, -1, -1, count) + body
    return struct.pack(">qiibI", base, len(covered) + 9, -1, 2, calc_crc32c(covered)) + covered


def send_batch(bootstrap: str, topic: str, sent: bytes, partition: int = 0) -> None:
    """Send the bytes of a batch unchanged; return after the broker has stored them."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False, retries=0)) as producer:
        with patch.object(DefaultRecordBatchBuilder, "build", lambda _: bytearray(sent)):
            future = producer.send(topic, b"its place is taken", partition=partition)
            producer.flush()
        future.get(timeout=DEADLINE_SECONDS)


def segment(kafka: KafkaServer, topic: str, partition: int = 0) -> Path:
    """Return the file in which the broker stores new records."""
    return max((kafka.directory / "data" / f"{topic}-{partition}").glob("*.log"))


def corrupt(path: Path, at: bytes, by: bytes) -> None:
    """Overwrite bytes of a file as a failing disk would, while the broker runs."""
    assert len(at) == len(by)
    data = path.read_bytes()
    assert data.count(at) == 1
    with path.open("r+b") as log:
        log.seek(data.index(at))
        log.write(by)
