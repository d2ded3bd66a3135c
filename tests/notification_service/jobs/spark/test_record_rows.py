"""The rows that the audit makes of Kafka's records before Spark gathers them; without Spark."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from harness.driving import wire

from notification_service.commands.audit import audit, audit_settings
from notification_service.configuration.configuration import Configuration, load
from notification_service.jobs.audit.record_rows import _rows, headers_of
from notification_service.jobs.audit.rows import DEAD_LETTER, NOTIFICATION, RECORD, REFUSED, UNREADABLE, read_refused
from notification_service.jobs.audit.rules import AuditRules
from notification_service.payments.envelope import DataEnvelope
from resequencer.errors import ConfigurationError
from resequencer.record import Origin, Partition, Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def headers(*of: list[tuple[str, bytes | None]] | None) -> pa.Array:
    return pa.array([None if each is None else [{"key": name, "value": value} for name, value in each] for each in of], HEADERS)


def rows_of(kind: int, *records: tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]) -> list[Any]:
    kinds = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    columns = [pa.array([record[at] for record in records], each) for at, each in enumerate(kinds)]
    batch = pa.RecordBatch.from_arrays([*columns, headers(*(record[5] for record in records))], names=[*"abcdef"])
    return list(_rows(kind, [batch], AuditRules(audit_settings(load(), {}))))


def test_the_audit_reads_numbers_from_zero_on_where_they_begin_with_it(loaded: Callable[..., Configuration]) -> None:
    record = Record(Origin(Partition("T", 0), 1), wire("uow-1", "A", 0, "e"), b"k")
    for first, reads in ((0, True), ("any", True), (1, False)):
        named = f"payment-status-notification.resequencer {{ strategy = SEQUENCE, first-sequence = {first} }}"
        found = AuditRules(audit_settings(loaded(named), {})).decoder.decode(record)
        assert isinstance(found, DataEnvelope) is reads


def test_an_audit_of_windows_is_refused_where_records_do_not_leave_as_they_came(write: Callable[..., Path]) -> None:
    named = "payment-status-notification.resequencer { strategy = WINDOW, order-by = sequence }"
    with pytest.raises(ConfigurationError, match="depends on when the events came"):
        audit(Namespace(config=write(named), overrides=(), archive=False, output=None, master=None, json=False))


def test_headers_are_those_of_their_record_also_in_a_part_of_a_batch() -> None:
    column = headers([("a", b"1")], None, [], [("b", None), ("b", b"2")])
    assert list(headers_of(column)) == [(("a", b"1"),), (), (), (("b", b""), ("b", b"2"))]
    assert list(headers_of(column[2:])) == [(), (("b", b""), ("b", b"2"))]


def test_a_record_goes_to_its_unit_and_one_that_is_none_to_its_place() -> None:
    envelope = wire("uow-1", "Flow", 1, "e1")
    found = rows_of(RECORD, (3, 7, 1_000, b"another", envelope, []), (3, 8, 1_001, b"uow-1", None, []))
    assert [(row.partition, row.unit, row.kind, row.place, row.at) for row in found] == [
        (3, "uow-1", RECORD, 7, 1_000),
        (3, "\x008", REFUSED, 8, 1_001),
    ]
    assert read_refused(found[1].payload).reason == "undecodable"


def test_a_header_name_that_is_not_utf_8_is_a_defect_as_it_is_for_the_service() -> None:
    envelope = wire("uow-1", "Flow", 1, "e1")
    found = rows_of(RECORD, (3, 7, 1_000, None, envelope, [("Gr\ufffde", b"")]), (3, 8, 1_001, None, envelope, [("Größe", b"")]))
    assert [row.kind for row in found] == [REFUSED, RECORD]
    assert read_refused(found[0].payload).reason == "undecodable"


def test_a_notification_goes_to_where_it_says_that_its_record_lies() -> None:
    named = [("notification-id", b"N"), ("source-position", b"in-5@9")]
    (notified,) = rows_of(NOTIFICATION, (0, 4, 1_000, b"uow-1", b"{}", named))
    assert (notified.partition, notified.unit) == (5, "uow-1")
    (unreadable,) = rows_of(NOTIFICATION, (0, 4, 1_000, b"uow-1", b"{}", []))
    assert unreadable.kind == UNREADABLE
    assert unreadable.payload.startswith(b"partition 0, offset 4 of the topic: a notification without a key")


def test_a_dead_letter_goes_to_its_unit_where_the_record_has_one() -> None:
    def letter(reason: bytes) -> list[tuple[str, bytes]]:
        return [("dead-letter-reason", reason), ("dead-letter-source-position", b"in-5@9")]

    envelope = wire("uow-1", "Flow", 1, "e1")
    found = rows_of(
        DEAD_LETTER,
        (0, 1, 0, None, envelope, letter(b"conflicting-duplicate")),
        (0, 2, 0, None, b"{", letter(b"undecodable")),
    )
    assert [(row.partition, row.unit, row.place) for row in found] == [(5, "uow-1", 9), (5, "\x009", 9)]
