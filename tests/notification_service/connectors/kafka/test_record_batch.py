"""Batches with a record that the client cannot read: only this record is lost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError
from kafka.record import memory_records
from kafka.record.memory_records import MemoryRecords

from notification_service.connectors.kafka.client import make_client
from notification_service.connectors.kafka.core.records import UndecodableHeaders
from notification_service.connectors.kafka.record_batch import RecordBatch
from tests.notification_service.connectors.kafka.raw_batches import GZIP, batch, record, varint


def test_every_client_that_is_made_here_reads_them_so() -> None:
    assert make_client.__module__ == "notification_service.connectors.kafka.client"
    assert memory_records.DefaultRecordBatch is RecordBatch


def read(data: bytes) -> list[Any]:
    records = MemoryRecords(data).next_batch()
    assert isinstance(records, RecordBatch)
    assert records.validate_crc()
    return list(records)


def contents_of(data: bytes) -> list[tuple[int, bytes | None, str | None]]:
    return [(each.offset, each.value, getattr(each.headers, "defect", None)) for each in read(data)]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_header_name_that_is_not_utf_8_costs_its_record(codec: int) -> None:
    odd = record(1, b"odd", (b"Gr\xfc\xdfe", b"\xff"), (b"other", None))
    before, malformed, after = read(batch([record(0, b"a"), odd, record(2, b"c")], codec=codec, base=70))
    assert [each.headers for each in (before, after)] == [[], []]
    assert [(each.offset, each.value) for each in (before, malformed, after)] == [(70, b"a"), (71, b"odd"), (72, b"c")]
    assert (malformed.key, malformed.headers) == (b"k", [("Gr\\xfc\\xdfe", b"\xff"), ("other", None)])
    assert malformed.headers.defect == "the name of a header is not UTF-8: Gr\\xfc\\xdfe"


def test_what_only_the_client_cannot_read_is_as_good_as_any() -> None:
    """The client takes the attributes for a number of several bytes."""
    (only,) = read(batch([record(0, b"a", (b"name", b"data"), attributes=0x81, later_ms=7)]))
    assert only.timestamp == 1_007
    assert (only.value, only.headers) == (b"a", [("name", b"data")])
    assert not isinstance(only.headers, UndecodableHeaders)


NO_RECORDS = {
    "a header without a name": record(1, b"odd", (None, b"data")),
    "bytes behind its headers": record(1, b"odd", behind=b"!"),
    "more headers than there are": varint(8) + b"\0" + varint(0) + varint(1) + varint(-1) + varint(-1) + varint(9) + b"\0\0",
    "fewer headers than none": varint(6) + b"\0" + varint(0) + varint(1) + varint(-1) + varint(-1) + varint(-2),
    "a number that does not end": varint(12) + b"\0" + b"\xff" * 11,
    "a key of more bytes than there are": varint(8) + b"\0" + varint(0) + varint(1) + varint(1_000) + b"abc",
    "nothing": varint(0),
}


@pytest.mark.parametrize("what", NO_RECORDS)
@pytest.mark.parametrize("codec", [0, GZIP])
def test_what_is_no_record_comes_with_all_its_bytes(what: str, codec: int) -> None:
    odd = NO_RECORDS[what]
    before, malformed, after = contents_of(batch([record(0, b"a"), odd, record(2, b"c")], codec=codec))
    assert (before, after) == ((0, b"a", None), (2, b"c", None))
    assert malformed[:2] == (1, odd.removeprefix(varint(len(odd) - 1)) if len(odd) < 65 else odd)
    assert (malformed[2] or "").startswith("it is no record of Kafka's format 2 (")


@pytest.mark.parametrize("places", [(0, 0, 2), (0, 5, 2), (0, 2, 1), (0, -1, 2), (2, 1, 0), (7, 7, 7)])
def test_records_that_share_an_offset_get_offsets_of_their_own(places: tuple[int, ...]) -> None:
    found = contents_of(batch([record(place, b"%d" % at) for at, place in enumerate(places)], last=2, base=10))
    assert [each[:2] for each in found] == [(10, b"0"), (11, b"1"), (12, b"2")]
    for (offset, _, defect), place in zip(found, places, strict=True):
        assert (defect is None) == (place == offset - 10)
        assert defect is None or defect == f"its batch gives it offset {10 + place}, which belongs to another record"


def test_offsets_that_compaction_took_stay_away() -> None:
    assert contents_of(batch([record(2, b"c"), record(5, b"f")], last=6)) == [(2, b"c", None), (5, b"f", None)]


def test_among_offsets_that_compaction_took_each_is_above_the_one_before() -> None:
    found = contents_of(batch([record(2), record(2), record(9), record(6)], last=6))
    assert [(offset, defect is None) for offset, _, defect in found] == [(2, True), (3, False), (4, False), (6, True)]


@pytest.mark.parametrize(
    "malformed",
    [
        batch([record(0), varint(1_000) + b"abc"]),
        batch([record(0), b"\xff" * 11]),
        batch([record(0)], count=2, last=1),
        batch([record(0), record(0)], last=0),
        batch([record(0), b"?"], count=1),
    ],
    ids=["longer than its batch", "no length", "fewer than counted", "more than offsets", "something behind the last"],
)
def test_where_the_next_one_begins_cannot_be_told_the_batch_is_corrupt(malformed: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        read(malformed)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.integers(0, 3))
def test_whatever_the_bytes_are_each_record_has_its_offset_or_the_batch_is_corrupt(bodies: list[bytes], missing: int) -> None:
    data = batch([varint(len(each)) + each for each in bodies], last=len(bodies) - 1 + missing, base=5)
    offsets = [each.offset for each in read(data)]
    assert len(offsets) == len(bodies)
    assert offsets == sorted(set(offsets))
    assert 5 <= offsets[0] <= offsets[-1] < 5 + len(bodies) + missing
