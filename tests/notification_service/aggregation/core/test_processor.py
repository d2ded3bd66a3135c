"""One turn of a store: what commands and instants change, and what leaves with it."""

from collections.abc import Sequence

import pytest
from harness.kept_values import KeptValues

from notification_service.aggregation import core as module
from notification_service.aggregation.core import MAX_VALUE_BYTES, Change, Command, Completion, Processor, Slot, Stored
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import PermanentError, Undecodable
from resequencer.record import Origin, Partition, Record

NOW = 1_000


class Texts:
    """The head is the bodies of all commands, the member its last one. A word of its own makes the command do something else."""

    def apply(self, head: bytes | None, member: bytes | None, command: Command, now: Instant) -> Change:
        word = command.body
        if word == b"refuse":
            raise Undecodable("refused")
        if word == b"same":
            return Change(head, member)
        if word == b"delete":
            return Change(None, None)
        if word == b"empty":
            return Change(b"", None)
        if word.startswith(b"huge"):
            return Change(b"x" * (MAX_VALUE_BYTES + (word == b"huge+1")), word)
        return Change((head or b"") + word, word, due=now + 10 if word == b"due" else None)

    def dated_back(self, head: bytes, now: Instant) -> None:
        del head, now

    def on_due(self, key: str, head: bytes, now: Instant, counts_from: Instant | None) -> Change:
        del counts_from
        if head.endswith(b"!"):
            return Change(None, forgets_members=True)
        return Change(head + b"!", due=now + 5)

    def on_value(self, key: str, old: bytes | None, new: bytes | None, now: Instant) -> Sequence[Completion]:
        if new is not None and new.endswith(b"unsayable"):
            raise PermanentError("cannot be said")
        return (Completion(key.encode(), (), (old or b"-") + b">" + (new or b"-")),)


def record(body: bytes, key: str = "k", member: str | None = None, offset: int = 0) -> Record:
    headers = () if member is None else (("member", member.encode()),)
    return Record(Origin(Partition("commands", 0), offset), body, key.encode(), headers)


@pytest.fixture
def values() -> KeptValues:
    return KeptValues()


@pytest.fixture
def processor() -> Processor:
    return Processor(Texts())


def test_a_command_changes_the_head_and_its_member_and_is_followed_by_records(processor: Processor, values: KeptValues) -> None:
    turn = processor.apply(values, [record(b"a", member="m")], NOW)
    assert turn.changes == {Slot("k"): Stored(b"a"), Slot("k", "m"): Stored(b"a")}
    assert turn.output == [Completion(b"k", (), b"->a")]
    assert turn.applied == 1
    assert values.stored == {}, "Only a commit stores."


def test_a_command_sees_what_earlier_ones_of_its_turn_left(processor: Processor, values: KeptValues) -> None:
    turn = processor.apply(values, [record(b"a", member="m"), record(b"b", member="m"), record(b"c", "other")], NOW)
    assert turn.changes == {Slot("k"): Stored(b"ab"), Slot("k", "m"): Stored(b"b"), Slot("other"): Stored(b"c")}
    assert [each.value for each in turn.output] == [b"->a", b"a>ab", b"->c"]  # type: ignore[union-attr]


def test_a_turn_that_was_thrown_away_is_the_same_again(processor: Processor, values: KeptValues) -> None:
    records = [record(b"a", member="m"), record(b"refuse"), record(b"due")]
    assert processor.apply(values, records, NOW) == processor.apply(values, records, NOW)


def test_a_command_without_a_member_changes_no_member(processor: Processor, values: KeptValues) -> None:
    assert processor.apply(values, [record(b"a")], NOW).changes.keys() == {Slot("k")}


def test_values_that_stay_the_same_are_no_changes_and_nothing_follows(processor: Processor, values: KeptValues) -> None:
    values.commit(processor.apply(values, [record(b"a", member="m")], NOW))
    turn = processor.apply(values, [record(b"same", member="m")], NOW)
    assert turn.is_empty
    assert turn.applied == 1


def test_what_a_turn_takes_back_is_no_change(processor: Processor, values: KeptValues) -> None:
    turn = processor.apply(values, [record(b"a", member="m"), record(b"delete", member="m")], NOW)
    assert turn.changes == {}
    assert [each.value for each in turn.output] == [b"->a", b"a>-"]  # type: ignore[union-attr]


def test_a_deletion_is_a_change_to_nothing(processor: Processor, values: KeptValues) -> None:
    values.commit(processor.apply(values, [record(b"a", member="m")], NOW))
    assert processor.apply(values, [record(b"delete", member="m")], NOW).changes == {Slot("k"): None, Slot("k", "m"): None}


def test_another_due_instant_alone_is_a_change_without_records(processor: Processor, values: KeptValues) -> None:
    values.stored[Slot("k")] = Stored(b"a", due=5)
    turn = processor.apply(values, [record(b"same")], NOW)
    assert turn.changes == {Slot("k"): Stored(b"a")}
    assert turn.output == []


@pytest.mark.parametrize(
    ("body", "key", "reason", "error"),
    [
        (b"refuse", "k", DeadLetterReason.UNDECODABLE, "refused"),
        (b"unsayable", "k", DeadLetterReason.HANDLER_FAILED, "cannot be said"),
        (b"empty", "k", DeadLetterReason.HANDLER_FAILED, "the value would be empty; return None to delete it"),
        (b"huge+1", "k", DeadLetterReason.TOO_LARGE, "the value would have 524289 bytes, 524288 are allowed"),
        (b"a", "", DeadLetterReason.INVALID_ID, "the key is empty"),
    ],
)
def test_a_command_that_cannot_be_applied_becomes_a_dead_letter_and_changes_nothing(
    processor: Processor, values: KeptValues, body: bytes, key: str, reason: DeadLetterReason, error: str
) -> None:
    bad = record(body, key, "m")
    turn = processor.apply(values, [record(b"a", offset=1), bad, record(b"b", offset=3)], NOW)
    assert turn.output[1] == DeadLetter(bad, reason, error, NOW)
    assert turn.changes == {Slot("k"): Stored(b"ab")}
    assert turn.applied == 2


def test_the_largest_value_is_stored(processor: Processor, values: KeptValues) -> None:
    (stored,) = processor.apply(values, [record(b"huge")], NOW).changes.values()
    assert stored is not None
    assert len(stored.body) == MAX_VALUE_BYTES


def test_only_keys_that_are_due_are_woken_those_longest_due_first(processor: Processor, values: KeptValues) -> None:
    for key, due in (("a", 30), ("b", 20), ("c", 31), ("d", None)):
        values.stored[Slot(key)] = Stored(key.encode(), due)
    turn = processor.wake(values, 30, NOW)
    assert turn.changes == {Slot("b"): Stored(b"b!", NOW + 5), Slot("a"): Stored(b"a!", NOW + 5)}
    assert [each.value for each in turn.output] == [b"b>b!", b"a>a!"]  # type: ignore[union-attr]


def test_a_key_that_is_not_due_is_left_alone(processor: Processor, values: KeptValues) -> None:
    values.stored[Slot("a")] = Stored(b"a", 30)
    assert processor.wake(values, 29, NOW).is_empty


def test_a_key_that_forgets_its_members_is_deleted_with_them(processor: Processor, values: KeptValues) -> None:
    values.stored |= {Slot("k"): Stored(b"a!", 1), Slot("k", "m"): Stored(b"1"), Slot("other", "m"): Stored(b"2")}
    turn = processor.wake(values, 1, NOW)
    assert turn.changes == {Slot("k"): None, Slot("k", "m"): None}
    assert [each.value for each in turn.output] == [b"a!>-"]  # type: ignore[union-attr]


def test_many_members_are_forgotten_in_portions_and_the_head_changes_with_the_last(
    processor: Processor, values: KeptValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FORGOTTEN_AT_ONCE", 2)
    values.stored |= {Slot("k"): Stored(b"a!", 1)} | {Slot("k", f"m{n}"): Stored(b"1") for n in range(5)}
    turns = []
    while Slot("k") in values.stored:
        turns.append(processor.wake(values, 1, NOW))
        values.commit(turns[-1])
    assert [len(turn.changes) for turn in turns] == [2, 2, 2]
    assert [len(turn.output) for turn in turns] == [0, 0, 1]
    assert values.stored == {}


def test_a_turn_that_has_forgotten_enough_leaves_other_keys_for_the_next(
    processor: Processor, values: KeptValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FORGOTTEN_AT_ONCE", 2)
    for key in ("a", "b"):
        values.stored |= {Slot(key): Stored(b"a!", 1)} | {Slot(key, f"m{n}"): Stored(b"1") for n in range(2)}
    assert {slot.key for slot in processor.wake(values, 1, NOW).changes} == {"a"}
