"""A message that arrives in parts: whole within the limit, and beyond it a beginning with length and digest."""

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from proton import Message

from notification_service.connectors.jms.arriving_message import ArrivingMessage, Beginning
from notification_service.connectors.jms.messages import digest_of, read_record
from resequencer.record import Cut, Origin, Partition, Record

LIMIT = 100_000
AT = Origin(Partition("Q", 0), 7)


def arrive(raw: bytes, part: int = 32_768, limit: int = LIMIT) -> bytes | Beginning:
    message = ArrivingMessage(limit)
    for at in range(0, len(raw), part):
        message.add(raw[at : at + part])
        assert message.held <= 4 * limit + 1_000_000
    return message.end()


def record_of(found: bytes | Beginning, limit: int = LIMIT) -> Record:
    return read_record(AT, decoded(found), found, limit, needs_id=False)


def decoded(found: bytes | Beginning) -> Any:
    message = Message()
    readable = found.head if isinstance(found, Beginning) else found
    if readable:
        message.decode(readable)
    return message


def encoded(body: Any, **more: Any) -> bytes:
    more = {"id": "ID:1", "correlation_id": "U1", "properties": {"a": "1"}, "annotations": {"x-opt": "broker"}, **more}
    encoding: bytes = Message(body=body, inferred=isinstance(body, bytes), **more).encode()
    return encoding


@pytest.mark.parametrize("part", [1_000, 32_768, 10**9])
@pytest.mark.parametrize("body", [b"\xa5" * LIMIT, "x" * LIMIT, "x" * 10, None, {"a": "b"}])
def test_a_message_within_the_limit_comes_whole(body: Any, part: int) -> None:
    found = record_of(arrive(encoded(body), part))
    raw = encoded(body)
    plain = Message()
    plain.decode(raw)
    assert found == read_record(AT, plain, raw, LIMIT, needs_id=False)
    assert found.cut is None


@pytest.mark.parametrize("part", [1, 997, 32_768, 10**9])
@pytest.mark.parametrize("body", [b"\xa5\x00" * LIMIT, "äx" * LIMIT])
def test_of_a_value_beyond_the_limit_its_beginning_and_digest_are_kept(body: Any, part: int) -> None:
    value = body if isinstance(body, bytes) else body.encode()
    found = record_of(arrive(encoded(body), part))
    assert found.cut == Cut(len(value), sha256(value).hexdigest())
    assert (found.value, found.key, found.headers) == (value[:65_536], b"U1", (("a", b"1"),))


def test_no_more_than_the_limit_is_kept_of_a_beginning() -> None:
    found = record_of(arrive(encoded(b"x" * 200_000), limit=1_000), 1_000)
    assert (len(found.value), found.cut) == (1_000, Cut(200_000, sha256(b"x" * 200_000).hexdigest()))


def test_the_digest_that_names_a_message_is_that_of_its_id_whole_or_not() -> None:
    """So a message that an earlier version has taken whole is known when it comes again."""
    raw = encoded(b"x" * 500_000)
    plain = Message()
    plain.decode(raw)
    found = arrive(raw)
    assert isinstance(found, Beginning)
    assert digest_of(decoded(found), found) == digest_of(plain, raw)


def test_without_an_id_properties_and_digest_name_it_whatever_brokers_annotate() -> None:
    def named(body: bytes, **more: Any) -> bytes:
        found = arrive(encoded(body, id=None, **more))
        return digest_of(decoded(found), found)

    big = b"x" * 500_000
    assert named(big) == named(big, annotations={"x-opt": "other"}, delivery_count=3)
    assert len({named(big), named(big + b"y"), named(big, properties={"a": "2"})}) == 3


def test_properties_beyond_the_limit_are_not_kept() -> None:
    raw = encoded(b"{}", properties={"large": "x" * 400_000})
    found = arrive(raw)
    record = record_of(found)
    assert isinstance(found, Beginning)
    assert (record.key, record.headers, len(record.value), record.defect) == (b"U1", (), 65_536, None)
    assert record.cut is not None
    assert 400_000 < record.cut.length < len(raw)
    # It is named by its id all the same.
    assert digest_of(decoded(found), found) == digest_of(Message(id="ID:1"), b"")


def test_bytes_that_are_no_message_are_a_defect_with_length_and_digest() -> None:
    raw = b"no message " * 50_000
    found = record_of(arrive(raw))
    assert found.defect == "it is not a message of AMQP 1.0"
    assert found.cut == Cut(len(raw), sha256(raw).hexdigest())
    assert found.value == raw[:65_536]


def test_a_message_that_ends_in_the_middle_is_a_defect() -> None:
    found = arrive(encoded(b"x" * 500_000)[:300_000])
    assert isinstance(found, Beginning)
    assert not found.is_message


def test_a_body_of_another_kind_is_kept_as_it_is_encoded() -> None:
    found = record_of(arrive(encoded({"a": "x" * 300_000})))
    assert found.cut is not None
    assert found.cut.length > 300_000
    assert b"xxx" in found.value


@given(some.binary(max_size=400), some.integers(1, 50), some.integers(1, 100))
def test_no_bytes_break_it(raw: bytes, part: int, limit: int) -> None:
    found = arrive(raw, part, limit)
    assert isinstance(found, bytes) or not found.is_message or found.cut.length <= len(raw)
