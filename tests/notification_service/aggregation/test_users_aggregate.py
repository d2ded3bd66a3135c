"""A user's own callables may raise anything and return anything: that costs their command, and not the store."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from notification_service.aggregation.atomic_store import UsersAggregate
from notification_service.aggregation.core import Change, Command, Processor, Slot, Stored
from resequencer.dead_letter import DeadLetter
from resequencer.errors import PermanentError
from resequencer.record import Origin, Partition, Record

ORIGIN = Origin(Partition("commands", 0), 7)


def command(body: bytes = b"1", member: str | None = "m") -> Command:
    return Command("k", member, body, ORIGIN)


def applied(apply: Any, head: bytes | None = None, member: bytes | None = None, of: Command | None = None) -> Change:
    return UsersAggregate(apply, None).apply(head, member, of or command(), 0)


def test_callables_see_values_and_not_bytes():
    seen: list[Any] = []

    def apply(head: Any, member: Any, command_body: Any) -> Any:
        seen.append((head, member, command_body))
        return {"sum": 3}, [1, 2]

    assert applied(apply, b'{"sum":1}', b"null", command(b'{"a":[1]}')) == Change(b'{"sum":3}', b"[1,2]")
    assert applied(apply, of=command(b'"text"')) == Change(b'{"sum":3}', b"[1,2]")
    assert seen == [({"sum": 1}, None, {"a": [1]}), (None, None, "text")]


def test_none_is_no_value():
    assert applied(lambda head, member, command_body: (None, None), b"1", b"2") == Change(None, None)


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("k"), RecursionError(), SystemExit(3), MemoryError(), AssertionError(), StopIteration()]
)
def test_whatever_apply_raises_costs_its_command(error: BaseException):
    with pytest.raises(PermanentError, match="raised") as raised:
        applied(lambda head, member, command_body: _raise(error))
    assert type(error).__name__ in str(raised.value)


def test_an_interruption_ends_the_store():
    with pytest.raises(KeyboardInterrupt):
        applied(lambda head, member, command_body: _raise(KeyboardInterrupt()))


@pytest.mark.parametrize("answer", [None, 1, {"head": 1}, [1, 2], (1,), (1, 2, 3), "ab"])
def test_what_is_no_pair_is_refused(answer: Any):
    with pytest.raises(PermanentError, match="instead of a pair"):
        applied(lambda head, member, command_body: answer)


@pytest.mark.parametrize("value", [object(), {1, object()}, {(1, 2): 3}, lambda: 1])
def test_a_value_that_json_cannot_say_is_refused(value: Any):
    with pytest.raises(PermanentError, match="no JSON"):
        applied(lambda head, member, command_body: (value, None))


def test_a_value_that_contains_itself_is_refused():
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    with pytest.raises(PermanentError, match="no JSON"):
        applied(lambda head, member, command_body: (round_and_round, None))


def test_a_number_that_is_none_becomes_null_as_in_json():
    assert applied(lambda head, member, command_body: ([math.nan], None)) == Change(b"[null]", None)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\xff"', b"[" * 100_000])
def test_a_command_that_is_no_json_is_refused_before_apply_is_called(body: bytes):
    with pytest.raises(PermanentError, match="the command is no JSON"):
        applied(lambda head, member, command_body: _raise(AssertionError()), of=command(body))


def test_a_command_without_a_member_cannot_change_one():
    with pytest.raises(PermanentError, match="a command without one"):
        applied(lambda head, member, command_body: (1, 2), of=command(member=None))
    assert applied(lambda head, member, command_body: (1, None), of=command(member=None)) == Change(b"1", None)


def test_what_follows_is_published_under_the_key_in_order():
    aggregate = UsersAggregate(lambda *_: (1, None), lambda key, old, new: [key, old, new]).on_value("k", b"1", b"[2]", 0)
    assert [(each.key, each.headers, each.value) for each in aggregate] == [(b"k", (), each) for each in (b'"k"', b"1", b"[2]")]
    assert UsersAggregate(lambda *_: (1, None), None).on_value("k", None, b"1", 0) == ()


@pytest.mark.parametrize("answer", [None, 1, "text", {"a": 1}, [object()]])
def test_what_follows_and_is_no_list_of_json_is_refused(answer: Any):
    with pytest.raises(PermanentError, match=r"instead of a list|no JSON"):
        UsersAggregate(lambda *_: (1, None), lambda *_: answer).on_value("k", None, b"1", 0)


class Values(dict[Slot, Stored]):
    def find_all(self, slots: Collection[Slot]) -> Mapping[Slot, Stored]:
        return {each: self[each] for each in slots if each in self}

    def due(self, until: int, most: int) -> list[str]:
        raise AssertionError((until, most))

    def keys(self, after: str, most: int) -> list[str]:
        raise AssertionError((after, most))

    def members(self, key: str, most: int) -> list[str]:
        raise AssertionError((key, most))


@pytest.mark.parametrize("which", ["apply", "on_value"])
def test_what_fails_becomes_a_dead_letter_and_changes_nothing_and_the_next_command_is_applied(which: str):
    def apply(head: Any, member: Any, command_body: Any) -> Any:
        return (_raise(ValueError("no")) if which == "apply" and command_body == "bad" else command_body), None

    def on_value(key: str, old: Any, new: Any) -> Any:
        return _raise(ValueError("no")) if new == "bad" else [new]

    bodies = (b'"good"', b'"bad"', b'"better"')
    records = [Record(Origin(Partition("commands", 0), at), body, b"k") for at, body in enumerate(bodies)]
    turn = Processor(UsersAggregate(apply, on_value)).apply(Values(), records, 0)
    assert turn.changes == {Slot("k"): Stored(b'"better"')}
    letters = [each for each in turn.output if isinstance(each, DeadLetter)]
    assert [each.record.value for each in letters] == [b'"bad"']
    assert f"{which} raised ValueError: no" in letters[0].error
    assert turn.applied == 2
