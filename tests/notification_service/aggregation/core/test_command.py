"""What makes a record a command."""

import pytest

from notification_service.aggregation.core import Command, CommandRefused, read_command
from notification_service.events.identifiers import MAX_LENGTH
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Cut, Headers, Origin, Partition, Record

ORIGIN = Origin(Partition("commands", 3), 42)


def record(key: bytes | None = b"key", headers: Headers = (), **others: object) -> Record:
    return Record(ORIGIN, b"body", key, headers, **others)  # type: ignore[arg-type]


def refused(given: Record) -> tuple[DeadLetterReason, str]:
    answer = read_command(given)
    assert isinstance(answer, CommandRefused)
    return answer.reason, answer.problem


def test_a_command_has_the_key_the_value_and_the_place_of_its_record() -> None:
    assert read_command(record()) == Command("key", None, b"body", ORIGIN)


def test_its_member_is_the_last_header_of_this_name() -> None:
    assert read_command(record(headers=(("member", b"a"), ("other", b"x"), ("member", b"b/c")))) == Command(
        "key", "b/c", b"body", ORIGIN
    )


@pytest.mark.parametrize("key", [None, b""])
def test_without_a_key_it_is_refused(key: bytes | None) -> None:
    assert refused(record(key)) == (DeadLetterReason.INVALID_ID, "the key is empty")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (b"\xff", "the key or the member is not UTF-8"),
        (b"a\nb", "the key contains a control character ('a\\nb')"),
        (b"x" * (MAX_LENGTH + 1), f"the key has 257 characters ('{'x' * 60}'…), at most 256 are allowed"),
    ],
)
def test_a_key_that_cannot_be_stored_is_refused(key: bytes, problem: str) -> None:
    assert refused(record(key)) == (DeadLetterReason.INVALID_ID, problem)


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (b"", "the member is empty"),
        (b"a\x00", "the member contains a control character ('a\\x00')"),
        (b"\xff", "the key or the member is not UTF-8"),
        (b"x" * (MAX_LENGTH + 1), f"the member has 257 characters ('{'x' * 60}'…), at most 256 are allowed"),
    ],
)
def test_a_member_that_cannot_be_stored_is_refused(member: bytes, problem: str) -> None:
    assert refused(record(headers=(("member", member),))) == (DeadLetterReason.INVALID_ID, problem)


def test_what_may_name_a_unit_may_name_a_member_and_a_key() -> None:
    for name in ("a/b", "100%", "a\u00a0b", "a\u200bb"):
        assert isinstance(read_command(record(name.encode(), headers=(("member", name.encode()),))), Command)


def test_characters_are_counted_and_not_bytes() -> None:
    assert isinstance(read_command(record("ü".encode() * MAX_LENGTH)), Command)


def test_what_the_source_could_not_read_is_refused_with_its_words() -> None:
    assert refused(record(defect="no JSON")) == (DeadLetterReason.UNDECODABLE, "no JSON")


def test_what_was_cut_is_too_large() -> None:
    assert refused(record(cut=Cut(2_000_000, "00"))) == (
        DeadLetterReason.TOO_LARGE,
        "a command of 2000000 bytes is too large",
    )
