"""An unexpected error of ours in a turn costs the one envelope that it concerns. The unit and the worker continue."""

from collections.abc import Callable
from typing import Any

import pytest
from harness.actors.asking import P0, Asked

import resequencer.turn.decide
from guardian.actor_gateway import Decided
from guardian.guardian_actor import Escalated
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LatestObjects, PaymentData
from resequencer.batch import UnitKey
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import TransientError
from resequencer.strategies.sequence import Sequence
from resequencer.turn.turn import Turn
from resequencer.unit import Entry, Unit

U = UnitKey(P0, "u")
BUG = ArithmeticError("a bug of ours")


def dead_lettered(decided: Decided) -> list[int]:
    """Return the offsets of the dead letters."""
    letters = [each for turn in decided.turns for each in turn.output if isinstance(each, DeadLetter)]
    assert {each.reason for each in letters} <= {DeadLetterReason.HANDLER_FAILED}
    return [each.record.origin.offset for each in letters]


def told_of(unit: str, asked: Asked, decided: Decided) -> list[str]:
    return [each for each in asked.notified(decided) if each.startswith(f"{unit}#")]


def stashed(asked: Asked) -> list[int]:
    """Return the offsets of the stashed records in the storage."""
    return [each.offset for each in asked.stored[U].stash]


def break_on(asked: Asked, *envelopes: DataEnvelope, error: Exception = BUG) -> None:
    asked.handler.breaks |= {each.envelope_id: error for each in envelopes}


@pytest.mark.parametrize(
    "error", [BUG, AssertionError("never so"), RecursionError("too deep"), MemoryError(), KeyError("x")], ids=repr
)
def test_of_a_poll_only_the_envelope_that_it_fails_on_is_a_dead_letter(asked: Asked, error: Exception) -> None:
    first, third, fourth, fifth, second = (asked.envelope("u", number) for number in (1, 3, 4, 5, 2))
    break_on(asked, second, error=error)
    decided = asked.poll(first, third, fourth, fifth, second, asked.envelope("v", 1))
    assert dead_lettered(decided) == [second.offset]
    assert told_of("u", asked, decided) == ["u#1", "u#3", "u#4", "u#5"]
    assert told_of("v", asked, decided) == ["v#1"]
    assert stashed(asked) == []


def test_the_dead_letter_says_what_was_raised_and_that_the_envelope_is_not_to_blame(asked: Asked) -> None:
    first = asked.envelope("u", 1)
    break_on(asked, first)
    (turn,) = asked.poll(first).turns
    (letter,) = turn.output
    assert isinstance(letter, DeadLetter)
    assert letter.record == first.record
    assert "ArithmeticError: a bug of ours" in letter.error
    assert "requeue" in letter.error


def test_a_stashed_one_that_fails_costs_itself_and_not_the_one_that_let_it_loose(asked: Asked) -> None:
    second, third = asked.envelope("u", 2), asked.envelope("u", 3)
    asked.poll(second, third)
    break_on(asked, second)
    decided = asked.poll(asked.envelope("u", 1))
    assert dead_lettered(decided) == [second.offset]
    assert asked.notified(decided) == ["u#1", "u#3"]
    assert stashed(asked) == []
    assert asked.report_units().waiting == 0


def test_one_that_fails_at_its_deadline_costs_itself(asked: Asked) -> None:
    second, third = asked.envelope("u", 2), asked.envelope("u", 3)
    asked.poll(second, third)
    break_on(asked, second)
    decided = asked.poll(after_ms=21_000)
    assert (dead_lettered(decided), asked.notified(decided)) == ([second.offset], ["u#3"])
    assert stashed(asked) == []
    assert asked.notified(asked.poll(asked.envelope("u", 4))) == ["u#4"]


def test_one_that_fails_when_it_is_tried_again_costs_itself(asked: Asked) -> None:
    first = asked.envelope("u", 1)
    asked.handler.fail(first, TransientError("away"))
    break_on(asked, first)
    asked.poll(first, asked.envelope("u", 2))
    decided = asked.poll(after_ms=3_000)
    assert (dead_lettered(decided), asked.notified(decided)) == ([first.offset], ["u#2"])
    assert stashed(asked) == []


def test_each_of_several_that_fail_costs_itself(asked: Asked) -> None:
    envelopes = [asked.envelope("u", number) for number in range(1, 9)]
    break_on(asked, *envelopes[1::2])
    decided = asked.poll(*envelopes)
    assert dead_lettered(decided) == [each.offset for each in envelopes[1::2]]
    assert asked.notified(decided) == ["u#1", "u#3", "u#5", "u#7"]


def test_what_was_set_aside_and_what_left_leave_once(asked: Asked) -> None:
    """This also holds after the actor was started again from the storage."""
    first, second, third = (asked.envelope("u", number) for number in (1, 2, 3))
    break_on(asked, second)
    asked.poll(third)
    asked.poll(first, second)
    asked.drop(P0)
    decided = asked.poll(asked.envelope("u", 4), after_ms=60_000)
    assert (dead_lettered(decided), asked.notified(decided)) == ([], ["u#4"])


def test_one_that_was_set_aside_may_come_again(asked: Asked) -> None:
    first = asked.envelope("u", 1)
    break_on(asked, first)
    asked.poll(first)
    asked.handler.breaks.clear()
    assert asked.notified(asked.poll(asked.envelope("u", 1))) == ["u#1"]


class TestWhereOurOwnStepsFail:
    """A bug outside of strategy and handler: nothing of the envelope can be counted. The unit is as if the envelope
    had not come.
    """

    @pytest.fixture
    def receive(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make a take of envelope 9 fail at its end."""
        right = resequencer.turn.decide.receive

        def receive(turn: Turn, envelope: Any) -> None:
            right(turn, envelope)
            if envelope.sequence == 9:
                raise BUG

        monkeypatch.setattr(resequencer.turn.decide, "receive", receive)

    @pytest.mark.usefixtures("receive")
    def test_one_that_cannot_be_taken_costs_itself(self, asked: Asked) -> None:
        asked.poll(asked.envelope("u", 3))
        second, ninth = asked.envelope("u", 2), asked.envelope("u", 9)
        decided = asked.poll(second, ninth, asked.envelope("v", 1))
        assert (dead_lettered(decided), asked.notified(decided)) == ([ninth.offset], ["v#1"])
        assert stashed(asked) == [1, second.offset]
        assert asked.notified(asked.poll(asked.envelope("u", 1))) == ["u#1", "u#2", "u#3"]

    @pytest.mark.usefixtures("receive")
    def test_a_deadline_that_comes_with_it_comes_all_the_same(self, asked: Asked) -> None:
        asked.poll(asked.envelope("u", 3))
        ninth = asked.envelope("u", 9)
        decided = asked.poll(ninth, after_ms=21_000)
        assert (dead_lettered(decided), asked.notified(decided)) == ([ninth.offset], ["u#3"])

    def test_one_that_cannot_be_stored_costs_itself(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        right = resequencer.turn.decide.encode_entry

        def encode(stashed: Entry) -> Any:
            if stashed.envelope.sequence == 9:
                raise BUG
            return right(stashed)

        monkeypatch.setattr(resequencer.turn.decide, "encode_entry", encode)
        second, ninth, third = (asked.envelope("u", number) for number in (2, 9, 3))
        decided = asked.poll(second, ninth, third)
        assert dead_lettered(decided) == [ninth.offset]
        assert stashed(asked) == [second.offset, third.offset]

    def test_one_whose_payment_data_cannot_be_stored_costs_itself(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second, third = asked.envelope("u", 1), asked.envelope("u", 2, mds=("BAD",)), asked.envelope("u", 3)
        right = LatestObjects.encode

        def encode(data: PaymentData) -> bytes:
            if data.find_mds("BAD") is not None:
                raise BUG
            return right(data)

        monkeypatch.setattr(LatestObjects, "encode", staticmethod(encode))
        decided = asked.poll(first, second, third)
        assert (dead_lettered(decided), asked.notified(decided)) == ([second.offset], ["u#1"])
        assert stashed(asked) == [third.offset]

    def test_of_the_stash_the_one_whose_data_cannot_be_gathered_costs_itself(
        self, new_asked: Callable[..., Asked], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The envelope that completes the payment is not at fault."""
        asked = new_asked("FULL_PAIN001")
        right = LatestObjects.absorb

        def absorb(data: PaymentData, envelope: DataEnvelope) -> PaymentData:
            if envelope.sequence == 7:
                raise BUG
            return right(data, envelope)

        monkeypatch.setattr(LatestObjects, "absorb", staticmethod(absorb))
        asked.poll(asked.envelope("u", 6))
        seventh = asked.envelope("u", 7)
        asked.poll(seventh, asked.envelope("u", 8))
        parts = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION")
        decided = asked.poll(asked.envelope("u", 9, mds=parts))
        assert dead_lettered(decided) == [seventh.offset]
        assert sorted(asked.notified(decided)) == ["u#6", "u#8", "u#9"]
        assert stashed(asked) == []

    def test_a_stashed_one_that_cannot_be_taken_up_costs_itself(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        second = asked.envelope("u", 2)
        asked.poll(second, asked.envelope("u", 3))
        right = Unit.remove

        def remove(self: Unit, entry: Entry) -> None:
            assert entry.envelope.sequence != 2, "only what is in the stash leaves it"
            right(self, entry)

        monkeypatch.setattr(Unit, "remove", remove)
        decided = asked.poll(asked.envelope("u", 1))
        assert (dead_lettered(decided), asked.notified(decided)) == ([second.offset], ["u#1"])
        assert asked.notified(asked.poll(after_ms=21_000)) == ["u#3"]
        assert stashed(asked) == []

    def test_one_that_cannot_be_tried_again_costs_itself(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        first = asked.envelope("u", 1, mds=("ANY",))
        asked.handler.fail(first, TransientError("away"))
        asked.poll(first, asked.envelope("u", 2))
        right = LatestObjects.absorb

        def absorb(data: PaymentData, envelope: DataEnvelope) -> PaymentData:
            if envelope.sequence == 1:
                raise BUG
            return right(data, envelope)

        monkeypatch.setattr(LatestObjects, "absorb", staticmethod(absorb))
        decided = asked.poll(after_ms=3_000)
        assert (dead_lettered(decided), asked.notified(decided)) == ([first.offset], [])
        assert asked.notified(asked.poll(after_ms=21_000)) == ["u#2"]
        assert stashed(asked) == []


@pytest.mark.parametrize("question", ["step", "rank", "observe", "accepts", "handled", "is_late"])
def test_a_strategy_of_ours_that_raises_costs_the_envelope_it_fails_on(question: str, new_asked: Callable[..., Asked]) -> None:
    """A user's own strategy that raises has the same effect. With `step` three questions are not asked."""

    def fail(self: Any, *arguments: Any) -> Any:
        if arguments[-1].sequence == 2:
            raise BUG
        return getattr(Sequence, question)(self, *arguments)

    asked = new_asked(type("Failing", (Sequence,), {"step": None, question: fail})())
    second = asked.envelope("u", 2)
    decided = asked.poll(asked.envelope("u", 1), second, asked.envelope("v", 1))
    expected = [] if question == "step" else [second.offset]  # The careful turn asks the other questions.
    assert dead_lettered(decided) == expected
    assert sorted(asked.notified(decided)) == (["u#1", "v#1"] if expected else ["u#1", "u#2", "v#1"])


def test_a_strategy_of_ours_that_cannot_say_what_is_missing_costs_nothing(new_asked: Callable[..., Asked]) -> None:
    class Wordless(Sequence):
        def missing(self, state: Any, envelope: Any) -> str:
            raise BUG

    asked = new_asked(Wordless())
    asked.poll(asked.envelope("u", 2))
    assert asked.waiting[U].waits_for == "unknown"
    assert asked.notified(asked.poll(after_ms=21_000)) == ["u#2"]


def test_a_stashed_record_that_can_no_longer_be_ranked_costs_only_that(new_asked: Callable[..., Asked]) -> None:
    """Envelopes are ranked anew when their unit is loaded, so the worker would otherwise end at each start."""
    before = new_asked()
    before.poll(before.envelope("u", 2), before.envelope("u", 3))

    class Forgetful(Sequence):
        def rank(self, envelope: Any) -> Any:
            if envelope.sequence == 2:
                raise BUG
            return super().rank(envelope)

    after = new_asked(Forgetful())
    after.stored, after.offset = before.stored, before.offset
    decided = after.poll(after.envelope("u", 1))
    assert (dead_lettered(decided), after.notified(decided)) == ([1], ["u#1"])
    assert stashed(after) == [2]


def test_what_is_known_of_flows_fails_and_the_stash_waits_as_configured(new_asked: Callable[..., Asked]) -> None:
    class Broken:
        def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
            raise BUG

    asked = new_asked("SEQUENCE", profiles=Broken(), is_learned=True)
    decided = asked.poll(asked.envelope("u", 2))
    assert dead_lettered(decided) == []
    assert asked.waiting[U].wakes_at == asked.now + 21_000


def test_a_thousand_of_one_unit_that_all_fail_are_set_aside_at_once(asked: Asked) -> None:
    envelopes = [asked.envelope("u", number) for number in range(1, 1_001)]
    break_on(asked, *envelopes)
    decided = asked.poll(*envelopes)
    assert dead_lettered(decided) == [each.offset for each in envelopes]
    assert len(asked.handler.seen) < 2_000


@pytest.mark.slow
def test_a_unit_that_cannot_go_on_whatever_is_set_aside_ends_the_worker(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state cannot be written any more. Without the arrivals it need not be written, but at the deadline it must be."""
    asked.poll(asked.envelope("u", 3))

    def encode(*_: Any) -> bytes:
        raise BUG

    monkeypatch.setattr(resequencer.turn.decide, "encode_state", encode)
    second = asked.envelope("u", 2)
    decided = asked.poll(second)
    assert (dead_lettered(decided), asked.notified(decided)) == ([second.offset], [])
    with pytest.raises(Escalated, match="a resequencer raised on no envelope in particular: unit 'u' of T-0: ") as ended:
        asked.poll(after_ms=21_000)
    assert "a bug of ours" in str(ended.value)
