"""The table in guardian/guardian_actor.py, row by row: the consequence of an exception in each place."""

from collections.abc import Callable
from typing import Any

import pytest
from harness.actors.asking import P0, Asked
from msgspec.structs import replace

import resequencer.turn.decide
from guardian.actor_gateway import ActorsFailed, Decided
from guardian.guardian_actor import SUPERVISION, Directive, Escalated, Failure, Guardian
from guardian.unit_registry import UnitRegistry
from resequencer.batch import UnitKey
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import PermanentError, TransientError
from resequencer.storage_port import Snapshot, WaitKind
from resequencer.strategies.registry import ForeignStrategy
from resequencer.strategies.sequence import Sequence
from resequencer.turn.turn import Turn

U = UnitKey(P0, "u")
TESTED: dict[Failure, Directive] = {
    Failure.HANDLER_FOR_A_WHILE: Directive.RETRY,
    Failure.HANDLER_FOR_EVER: Directive.DEAD_LETTER,
    Failure.STRATEGY: Directive.DEAD_LETTER,
    Failure.TURN: Directive.TAKE_AGAIN,
    Failure.CAREFUL_TURN: Directive.ESCALATE,
    Failure.STATE: Directive.ESCALATE,
    Failure.GUARDIAN: Directive.ESCALATE,
}


def dead_lettered(decided: Decided) -> list[DeadLetter]:
    return [each for turn in decided.turns for each in turn.output if isinstance(each, DeadLetter)]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_every_row_is_tested_here() -> None:
    assert dict(SUPERVISION) == TESTED


def test_a_handler_that_fails_for_a_while_makes_its_unit_wait_for_the_next_attempt(asked: Asked) -> None:
    first = asked.envelope("u", 1)
    asked.handler.fail(first, TransientError("away"))
    decided = asked.poll(first, asked.envelope("v", 1))
    assert asked.notified(decided) == ["v#1"]
    assert asked.waiting[U].kind is WaitKind.RETRY
    assert asked.notified(asked.poll(after_ms=3_000)) == ["u#1"]


def test_a_handler_that_fails_for_ever_costs_its_envelope_and_the_unit_goes_on(asked: Asked) -> None:
    first = asked.envelope("u", 1)
    asked.handler.fail(first, PermanentError("never"))
    decided = asked.poll(first, asked.envelope("u", 2))
    assert [(each.record, each.reason, each.error) for each in dead_lettered(decided)] == [
        (first.record, DeadLetterReason.HANDLER_FAILED, "never")
    ]
    assert asked.notified(decided) == ["u#2"]


@pytest.mark.parametrize("question", ["observe", "accepts", "rank", "handled", "is_late"])
def test_a_users_strategy_that_raises_costs_the_envelope_it_fails_on(question: str, new_asked: Callable[..., Asked]) -> None:
    class Picky(Sequence):
        """Fails on number 2."""

    def fail(self: Any, *arguments: Any) -> Any:
        if arguments[-1].sequence == 2:
            raise ZeroDivisionError("two")
        return getattr(Sequence, question)(self, *arguments)

    setattr(Picky, question, fail)
    asked = new_asked(ForeignStrategy(Picky(), "mine"))
    decided = asked.poll(asked.envelope("u", 1), asked.envelope("u", 2))
    assert asked.notified(decided) == ["u#1"]
    (letter,) = dead_lettered(decided)
    assert letter.reason is DeadLetterReason.HANDLER_FAILED
    assert "strategy mine failed: ZeroDivisionError: two" in letter.error
    assert asked.report_units().active == 1


def test_a_users_strategy_that_can_no_longer_rank_what_is_stashed_costs_only_that(new_asked: Callable[..., Asked]) -> None:
    before = new_asked(ForeignStrategy(Sequence(), "mine"))
    before.poll(before.envelope("u", 2), before.envelope("u", 3))

    class Forgetful(Sequence):
        def rank(self, envelope: Any) -> Any:
            if envelope.sequence == 2:
                raise KeyError("two")
            return super().rank(envelope)

    after = new_asked(ForeignStrategy(Forgetful(), "mine"))
    after.stored, after.offset = before.stored, before.offset
    decided = after.poll(after.envelope("u", 1))
    assert [each.record.origin.offset for each in dead_lettered(decided)] == [1]
    assert after.notified(decided) == ["u#1"]
    assert [each.offset for each in after.stored[U].stash] == [2]


class TestATurnThatRaises:
    """Turns that raise; test_a_turn_that_raises.py has more."""

    @pytest.fixture
    def decided(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Decided:
        """Unit `u` holds 3. Then 2 and 9 come, and its turn raises, while `v` is served."""
        asked.poll(asked.envelope("u", 3))
        right = resequencer.turn.decide.receive

        def receive(turn: Turn, envelope: Any) -> None:
            right(turn, envelope)
            if envelope.unit == "u" and envelope.sequence == 9:
                raise ArithmeticError("a bug of ours")

        with monkeypatch.context() as patch:
            patch.setattr(resequencer.turn.decide, "receive", receive)
            return asked.poll(asked.envelope("u", 2), asked.envelope("u", 9), asked.envelope("v", 1))

    def test_what_it_fails_on_becomes_a_dead_letter_and_all_others_are_served(self, asked: Asked, decided: Decided) -> None:
        assert [each.record.origin.offset for each in dead_lettered(decided)] == [3]
        assert {each.reason for each in dead_lettered(decided)} == {DeadLetterReason.HANDLER_FAILED}
        assert "ArithmeticError: a bug of ours" in dead_lettered(decided)[0].error
        assert asked.notified(decided) == ["v#1"]

    def test_the_rest_of_the_turn_is_stored(self, asked: Asked, decided: Decided) -> None:
        assert [each.offset for each in asked.stored[U].stash] == [1, 2]

    def test_the_actor_goes_on(self, asked: Asked, decided: Decided) -> None:
        assert asked.notified(asked.poll(asked.envelope("u", 1))) == ["u#1", "u#2", "u#3"]
        assert asked.loaded[-1] == frozenset()

    def test_its_deadline_still_comes(self, asked: Asked, decided: Decided) -> None:
        assert asked.report_units().waiting == 1
        assert asked.notified(asked.poll(after_ms=21_000)) == ["u#2", "u#3"]

    def test_the_bytes_of_its_stash_are_counted_once(self, asked: Asked, decided: Decided) -> None:
        assert asked.report_units().stashed_bytes == asked.waiting[U].stashed_bytes
        asked.poll(asked.envelope("u", 4))
        assert asked.report_units().stashed_bytes == asked.waiting[U].stashed_bytes


def test_a_deadline_that_came_with_arrivals_that_raise_is_kept(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.poll(asked.envelope("u", 3))
    with monkeypatch.context() as patch:
        patch.setattr(resequencer.turn.decide, "receive", raising(ArithmeticError("a bug of ours")))
        assert asked.notified(asked.poll(asked.envelope("u", 2), after_ms=21_000)) == ["u#3"]
    assert asked.notified(asked.poll()) == []


def test_a_resequencer_that_raises_twice_and_then_not_costs_nothing(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    right, failures = resequencer.turn.decide.receive, [ArithmeticError(), ArithmeticError()]

    def receive(turn: Turn, envelope: Any) -> None:
        if failures:
            raise failures.pop()
        right(turn, envelope)

    monkeypatch.setattr(resequencer.turn.decide, "receive", receive)
    decided = asked.poll(asked.envelope("u", 1))
    assert (asked.notified(decided), dead_lettered(decided)) == (["u#1"], [])


def test_a_turn_that_raises_on_no_envelope_in_particular_ends_the_worker_and_names_the_unit(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.poll(asked.envelope("u", 3))
    monkeypatch.setattr(resequencer.turn.decide, "wake", raising(ArithmeticError("a bug of ours")))
    with pytest.raises(Escalated, match="unit 'u' of T-0") as caught:
        asked.poll(after_ms=21_000)
    assert (caught.value.failure, caught.value.key) == (Failure.CAREFUL_TURN, U)
    assert "a bug of ours" in str(caught.value)


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (Snapshot("u", b"\xc1", None, ()), "damaged"),
        (Snapshot("u", b"\x96\x63\xa1x\xc0\xc4\x00\x00\xc0", None, ()), "run the newer version"),
    ],
)
def test_a_state_that_cannot_be_used_ends_the_worker_and_names_the_unit(asked: Asked, snapshot: Snapshot, expected: str) -> None:
    asked.stored[U] = snapshot
    with pytest.raises(Escalated, match=expected) as caught:
        asked.poll(asked.envelope("u", 1), asked.envelope("v", 1))
    assert (caught.value.failure, caught.value.key) == (Failure.STATE, U)
    with pytest.raises(Escalated, match=expected):  # Another question must not begin a new unit in its place.
        asked.poll(asked.envelope("u", 2))


@pytest.mark.parametrize("damage", ["data", "stash"])
def test_damaged_parts_of_a_unit_end_the_worker_too(asked: Asked, damage: str) -> None:
    asked.poll(asked.envelope("u", 2))
    asked.drop(P0)
    stored = asked.stored[U]
    entry = replace(stored.stash[0], body=b"\xc1")
    asked.stored[U] = replace(stored, data=b"\xc1") if damage == "data" else replace(stored, stash=(entry,))
    with pytest.raises(Escalated, match=r"damaged .* restore the storage from a backup") as caught:
        asked.poll(asked.envelope("u", 1))
    assert caught.value.failure is Failure.STATE


def test_another_strategy_is_refused_where_something_waits_in_a_unit(new_asked: Callable[..., Asked]) -> None:
    before, after = new_asked(), new_asked("STRICT_SEQUENCE")
    before.poll(before.envelope("u", 2))
    after.stored = before.stored
    with pytest.raises(Escalated, match="STRICT_SEQUENCE is configured, but unit 'u' waits in a state of SEQUENCE"):
        after.poll(after.envelope("u", 1))


@pytest.mark.parametrize("times", [1, 9])
@pytest.mark.parametrize(
    ("owner", "part"),
    [
        (Guardian, "_send_to_new"),
        (Guardian, "receiveMsg_TurnsTaken"),
        (Guardian, "receiveMsg_Stop"),
        (UnitRegistry, "dues"),
        (UnitRegistry, "note"),
        (UnitRegistry, "activate"),
    ],
)
def test_a_guardian_that_raises_ends_the_worker_even_if_it_would_not_raise_again(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, owner: type, part: str, times: int
) -> None:
    """A part of the turns may be out, or the registry half changed: a deadline is taken from the heap, a turn is not noted."""
    asked.poll(asked.envelope("w", 1))
    right, left = getattr(owner, part), [times]

    def fail(self: Any, *arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ArithmeticError("a bug of the guardian")
        return right(self, *arguments)

    monkeypatch.setattr(owner, part, fail)
    with pytest.raises(ActorsFailed, match="a bug of the guardian"):
        asked.poll(asked.envelope("u", 1), asked.envelope("v", 1), after_ms=30_000)
    with pytest.raises(ActorsFailed, match="the guardian raised"):
        asked.report_units()
    with pytest.raises(ActorsFailed, match="the guardian raised"):
        asked.poll(asked.envelope("u", 2))


def test_an_envelope_that_was_dead_lettered_and_sent_again_at_once_is_stored_while_it_is_tried(asked: Asked) -> None:
    """Its id is that of an envelope that was stashed; its record is another."""
    second = asked.envelope("u", 2)
    asked.poll(second)
    asked.handler.fail(second, PermanentError("never"), TransientError("away"))
    first, again = asked.envelope("u", 1), asked.envelope("u", 2)
    asked.poll(first, again)
    assert [each.offset for each in asked.stored[U].stash] == [again.offset]
    asked.drop(P0)
    asked.arm([U])
    assert asked.notified(asked.poll(after_ms=3_000)) == ["u#2"]
