"""A turn that has used its output budget stops: the rest leaves in the next turns, as if the turn had not been cut."""

from typing import Any

import msgspec
import pytest
from harness.driving import PAIN_001, Driven, Envelopes, Recorder, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS, PaymentData
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter
from resequencer.errors import PermanentError, TransientError
from resequencer.handler import Handled, Marks
from resequencer.storage_port import WaitKind
from resequencer.unit import Wake
from resequencer.unit_codec import encode_state

ONE = 1
"""A budget so small that each turn handles one envelope."""


def cut(name: str, budget: int = ONE, **more: Any) -> Driven:
    """Return a unit that goes through the storage at each turn, and releases no more than its budget per turn."""
    unit = drive(name, **more)
    unit.budget, unit.reincarnates = budget, True
    return unit


def left(unit: Driven) -> list[tuple[str, ...]]:
    """Return the whole output with marks and payment data, in order."""
    seen = {each.envelope_id: (data, marks) for each, data, marks, _ in unit.handler.seen}
    made = []
    for each in unit.left:
        if isinstance(each, DeadLetter):
            made.append(("dead", str(each.record.origin.offset), str(each.reason)))
        else:
            data, marks = seen[each.notification_id]
            made.append((each.notification_id, str(marks.incomplete), str(marks.late), str(data)))
    return made


def kept(unit: Driven) -> tuple[object, ...]:
    """Return the unit as it would be stored. Of `gathered_to` it counts only which of the stashed envelopes were gathered."""
    whole = unit.unit.copy()
    whole.gathered_to = -1
    stored = encode_state(whole, unit.strategy)
    offsets = sorted(each.envelope.offset for each in unit.unit.stash)
    return stored, LATEST_OBJECTS.encode(unit.unit.data), [(each, each <= unit.unit.gathered_to) for each in offsets]


def test_what_comes_loose_leaves_a_share_at_a_time_and_is_due_at_once(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    unit.arrive(*(envelopes(number) for number in (4, 3, 2)))
    waits = unit.arrive(envelopes(1)).waits
    assert waits is not None
    assert unit.sequences == [1]
    assert (waits.kind, waits.wakes_at, waits.stashed) == (WaitKind.REMAINDER, unit.now, 3)
    assert waits.stashed_bytes > 0
    unit.wake(Wake.REMAINDER)
    assert unit.sequences == [1, 2]
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2, 3, 4]
    assert unit.last is not None
    assert unit.last.waits is None
    assert unit.stored is not None
    assert unit.stored.stash == ()


def test_a_share_of_two_envelopes_lets_two_out(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE", budget=1_500)
    unit.arrive(*(envelopes(number) for number in (5, 4, 3, 2)))
    turn = unit.arrive(envelopes(1))
    assert unit.sequences == [1, 2]
    assert 1_500 <= turn.output_bytes < 3_000


@pytest.mark.parametrize("cause", [Wake.DEADLINE, Wake.BOUND])
def test_a_release_goes_on_with_the_marks_that_it_would_have_made(cause: Wake, envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE", stash_limit=3 if cause is Wake.BOUND else 100)
    made = [envelopes(number) for number in (9, 8, 5, 4)]
    unit.arrive(*made)
    if cause is Wake.DEADLINE:
        unit.expire()
    assert unit.sequences == [4]
    unit.let_out_the_rest()
    assert unit.sequences == [4, 5, 8, 9]
    assert [marks.incomplete for marks in unit.marks] == ["sequence:1", "sequence:1", "sequence:6", "sequence:6"]


def test_each_part_of_a_release_says_what_it_released_and_only_the_last_ends_the_actor(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    unit.arrive(envelopes(9), envelopes(7))
    first = unit.expire()
    assert [(each.cause, each.envelopes, each.is_rest) for each in first.releases] == [(Wake.DEADLINE, 1, False)]
    assert not first.is_over
    last = unit.wake(Wake.REMAINDER)
    assert [(each.cause, each.envelopes, each.is_rest) for each in last.releases] == [(Wake.DEADLINE, 1, True)]
    assert last.is_over


def test_what_arrives_meanwhile_is_taken_after_the_rest(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    unit.arrive(envelopes(9), envelopes(7))
    unit.expire()
    unit.arrive(envelopes(8))
    assert unit.sequences == [7, 9]
    unit.let_out_the_rest()
    assert unit.sequences == [7, 9, 8]
    assert (unit.marks[-1].incomplete, unit.marks[-1].late) == (None, True)


def test_of_one_poll_what_is_beyond_the_share_waits_in_the_order_of_its_arrival(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    turn = unit.arrive_together(*(envelopes(number) for number in (1, 3, 2, 4)))
    assert unit.sequences == [1]
    assert turn.waits is not None
    assert (turn.waits.kind, turn.waits.stashed) == (WaitKind.REMAINDER, 3)
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2, 3, 4]


def test_without_a_share_nothing_leaves_and_nothing_is_lost(envelopes: Envelopes) -> None:
    """Its cycle has already used its budget."""
    unit = cut("SEQUENCE", budget=0)
    unit.arrive(envelopes(2), envelopes(1), envelopes(1, identity="again"))
    unit.wake(Wake.REMAINDER)
    unit.wake(Wake.DEADLINE, after_ms=50_000)
    assert unit.left == []
    unit.budget = ONE
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2, 1]


def test_a_duplicate_that_waited_behind_a_remainder_is_told_and_forgotten(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    first, second = envelopes(1), envelopes(2)
    unit.arrive_together(first, second, envelopes.again(second), envelopes(2, flow="B", identity=second.envelope_id))
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2]
    assert [str(each.reason) for each in unit.dead] == ["conflicting-duplicate"]
    assert unit.stored is not None
    assert unit.stored.stash == ()


def test_the_deadline_of_what_waited_behind_a_remainder_is_that_of_its_arrival(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    unit.arrive_together(envelopes(1), envelopes(5))
    arrived_at = unit.now
    unit.now += 2_000
    unit.let_out_the_rest()
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.kind, unit.last.waits.wakes_at) == (WaitKind.DEADLINE, arrived_at + 21_000)


def test_an_attempt_that_was_cut_off_before_its_head_goes_on_before_anything_else(envelopes: Envelopes) -> None:
    """Envelopes that came before the head leave before it, one budget at a time."""
    unit = cut("SEQUENCE")
    head = envelopes(5)
    unit.handler.fail(head, TransientError("away"))
    unit.arrive(head)
    unit.expire()
    unit.arrive(*(envelopes(number) for number in (3, 2, 1)))
    unit.wake(Wake.RETRY, after_ms=3_000)
    assert unit.sequences == [1]
    unit.arrive(envelopes(7))
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2, 3, 5]
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.kind is WaitKind.DEADLINE


def test_stashed_records_that_are_no_envelopes_any_more_leave_a_share_at_a_time(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    unit.arrive(*(envelopes(number) for number in (7, 6, 5)))
    assert unit.stored is not None
    malformed = tuple(
        msgspec.structs.replace(each, body=each.body.replace(b"unitOfWorkId", b"unitOfWorkIx")) for each in unit.stored.stash
    )
    unit.stored = msgspec.structs.replace(unit.stored, stash=malformed)
    unit.wake(Wake.DEADLINE)
    assert len(unit.dead) == 1
    unit.let_out_the_rest()
    assert [str(each.reason) for each in unit.dead] == ["no-unit-of-work"] * 3
    assert unit.stored.stash == ()


def test_what_an_envelope_fails_on_for_good_counts_as_let_out(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    made = [envelopes(number) for number in (3, 2, 1)]
    for each in made:
        unit.handler.fail(each, PermanentError("never"))
    unit.arrive(*made)
    assert len(unit.dead) == 1
    unit.let_out_the_rest()
    assert len(unit.dead) == 3


def test_a_state_without_a_remainder_is_stored_as_before_there_were_any(envelopes: Envelopes) -> None:
    unit = cut("SEQUENCE")
    unit.arrive(envelopes(2))
    assert unit.stored is not None
    assert len(msgspec.msgpack.decode(unit.stored.state)) == 6
    unit.arrive(envelopes(1))
    assert len(msgspec.msgpack.decode(unit.stored.state)) == 7


# Any course of a unit


class Failing(Recorder):
    """Fails on a record as often as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.by_offset: dict[int, list[Exception]] = {}

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        self.failures = {envelope.envelope_id: self.by_offset[envelope.offset]}
        return super().handle(envelope, data, marks, now)


class Course:
    """Random arrivals and events, the same for several units, one of which has its turns cut."""

    def __init__(self, draw: st.DataObject, strategy: str) -> None:
        self._draw = draw.draw
        self._envelopes = Envelopes()
        self.strategy = strategy
        self.settings = {"stash_limit": self._draw(st.sampled_from((2, 4, 1_000)), label="limit"), "max_attempts": 3}
        self.made: list[DataEnvelope] = []

    def envelope(self) -> DataEnvelope:
        if self.made and self._draw(st.integers(0, 9)) == 0:
            return self._envelopes.again(self._draw(st.sampled_from(self.made)))
        parts = self._draw(st.sampled_from(((), (), ("PAIN_001",), PAIN_001)))
        made = self._envelopes(self._draw(st.integers(1, 9)), flow=self._draw(st.sampled_from("AB")), mds=parts)
        self.made.append(made)
        return made

    def failures(self) -> list[Exception]:
        away = TransientError("away")
        return self._draw(st.sampled_from(([], [], [], [], [PermanentError("never")], [away], [away] * 3)))


@pytest.mark.slow
@given(
    st.data(),
    st.sampled_from(("SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001")),
    st.sampled_from((1, 1_100, 2_100, 5_000)),
)
@settings(max_examples=examples(200))
def test_whatever_happens_all_that_leaves_is_what_leaves_without_a_share(data: st.DataObject, strategy: str, budget: int) -> None:
    course = Course(data, strategy)
    whole, parted = drive(strategy, **course.settings), cut(strategy, budget, **course.settings)
    whole.handler, parted.handler = Failing(), Failing()
    for _ in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(("arrive", "arrive", "arrive", "wait")))
        if what == "arrive":
            came = [course.envelope() for _ in range(data.draw(st.integers(1, 5)))]
            for each in came:
                failures = course.failures()
                for handler in (whole.handler, parted.handler):
                    assert isinstance(handler, Failing)
                    handler.by_offset[each.offset] = [*failures]
            whole.arrive_together(*came)
            first = data.draw(st.integers(0, len(came)))
            for some in (came[:first], came[first:]):
                parted.arrive_together(*some)
                parted.let_out_the_rest(data.draw(st.integers(0, 2)))
        else:
            parted.let_out_the_rest()
            after_ms = data.draw(st.sampled_from((0, 3_000, 6_000, 30_000)))
            for unit in (whole, parted):
                unit.wake(Wake.RETRY, after_ms)
            parted.let_out_the_rest()
            for unit in (whole, parted):
                unit.wake(Wake.DEADLINE)
            parted.let_out_the_rest()
    parted.let_out_the_rest()
    assert left(parted) == left(whole)
    assert kept(parted) == kept(whole)
