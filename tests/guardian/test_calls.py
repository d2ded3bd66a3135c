"""Calls of a handler that waits, as the worker counts them: at most so many, by age, one for each unit, until their time-out."""

from collections.abc import Iterable, Sequence

import pytest
from harness.driving import Envelopes, NoChance, Recorder
from msgspec.structs import replace

from guardian.calls import Calls, Ended
from notification_service.payments.payment_data import LATEST_OBJECTS
from resequencer.batch import UnitKey
from resequencer.call import Answer, Call
from resequencer.errors import PermanentError, TransientError
from resequencer.handler import UNMARKED, Handled
from resequencer.notification import Notification
from resequencer.record import Origin, Partition
from resequencer.settings import ResequencerSettings
from resequencer.strategies.sequence import Sequence as BySequence
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Retry, Unit, entry_of

P0, P1 = Partition("T", 0), Partition("T", 1)
TIMEOUT_MS = 3_000
MANY = 1 << 40
DONE = Handled()
CONTEXT = TurnContext(BySequence(), Recorder(), LATEST_OBJECTS, ResequencerSettings(), NoChance(), waits=True)


class Runner:
    """Runs calls that a test ends."""

    def __init__(self) -> None:
        self.started: list[Call] = []
        self.cancelled: list[Call] = []
        self.over: list[Ended] = []
        self.alone: set[str] = set()
        self.waited: list[float] = []
        self.is_closed = False

    def must_be_alone(self, call: Call) -> bool:
        return call.envelope.unit in self.alone

    def start(self, call: Call) -> None:
        self.started.append(call)

    def cancel(self, call: Call) -> None:
        self.cancelled.append(call)

    @property
    def has_ended(self) -> bool:
        return bool(self.over)

    def ended(self) -> Sequence[Ended]:
        over, self.over = self.over, []
        return over

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)

    def close(self) -> None:
        self.is_closed = True


class Worker:
    """Calls, with what a worker does in a cycle."""

    def __init__(self, limit: int = 64) -> None:
        self.now = 100.0
        self.runner = Runner()
        self.noted: list[tuple[str, str | None, int]] = []
        self.calls = Calls(self.runner, limit, TIMEOUT_MS, lambda: self.now, self._note)
        self._envelopes = Envelopes()

    def _note(self, call: Call, error: Exception | None, took_ms: int) -> None:
        self.noted.append((call.envelope.unit, None if error is None else str(error), took_ms))

    def head(self, unit: str, attempts: int = 0, partition: Partition = P0) -> Call:
        """Return the call of a new head of this unit."""
        made = self._envelopes(1)
        record = made.record
        made = replace(made, unit=unit, record=replace(record, origin=Origin(partition, record.origin.offset)))
        return Call(made, None, UNMARKED, 0, attempts)

    def note(self, *calls: Call, is_prepared: bool = True) -> None:
        """Take over a turn of each call's unit, after which it is called."""
        for call in calls:
            turn = Turn(Unit(call.envelope.unit, None), CONTEXT, 0)
            turn.key = call.key
            turn.called = Retry(entry_of(call.envelope, "", 0, 0), call.attempts, 0, is_called=True)
            turn.call = call if is_prepared else None
            self.calls.note(turn)

    def note_free(self, call: Call) -> None:
        """Take over a turn of its unit after which its handler is not called: it is held, or nothing waits."""
        turn = Turn(Unit(call.envelope.unit, None), CONTEXT, 0)
        turn.key = call.key
        self.calls.note(turn)

    def begin(self, *units: str) -> list[Call]:
        calls = [self.head(unit) for unit in units]
        self.note(*calls)
        self.calls.begin()
        return calls

    def end(self, call: Call, outcome: Handled | BaseException = DONE, at: float | None = None) -> None:
        self.runner.over.append(Ended(call, outcome, self.now if at is None else at))

    def take(self, max_bytes: int = MANY) -> dict[str, Answer]:
        return {key.unit: answer for key, answer in self.calls.take(max_bytes).items()}

    @property
    def started(self) -> list[str]:
        return units_of(self.runner.started)


def units_of(calls: Iterable[Call]) -> list[str]:
    return [each.envelope.unit for each in calls]


def output(size: int) -> Handled:
    return Handled((Notification("n", "u", "ACCP", b"x" * size, (), Origin(P0, 0)),))


def keys(calls: Sequence[UnitKey]) -> list[str]:
    return [each.unit for each in calls]


def test_a_call_begins_when_its_turn_is_committed_and_its_answer_is_taken_once() -> None:
    worker = Worker()
    call = worker.head("a")
    worker.note(call)
    assert worker.started == []
    worker.calls.begin()
    assert worker.runner.started == [call]
    worker.end(call)
    answer = worker.take()["a"]
    assert (answer.call, answer.outcome) == (call, DONE)
    assert worker.take() == {}


def test_no_more_than_the_limit_run_and_the_oldest_come_first() -> None:
    worker = Worker(limit=2)
    first, _, third = worker.begin("a", "b", "c")
    assert worker.started == ["a", "b"]
    assert worker.calls.wakes() == ()
    worker.end(first)
    worker.take()
    worker.note_free(first)
    assert keys(worker.calls.wakes()) == ["c"]
    worker.note(third, worker.head("d"))  # The woken unit prepares its call again; a new one is behind it.
    worker.calls.begin()
    assert worker.started == ["a", "b", "c"]


def test_a_unit_that_is_not_in_memory_is_woken_before_its_call_begins() -> None:
    worker = Worker()
    call = worker.head("a")
    worker.calls.wait_for(call.key)
    worker.calls.begin()
    assert worker.started == []
    assert keys(worker.calls.wakes()) == ["a"]
    assert worker.calls.due_in_ms() == 0
    worker.note(call)
    worker.calls.begin()
    assert worker.started == ["a"]


def test_arrivals_of_its_unit_do_not_begin_a_call_again() -> None:
    worker = Worker()
    (call,) = worker.begin("a")
    worker.note(call, is_prepared=False)
    worker.calls.begin()
    worker.end(call)
    worker.calls.take(0)
    worker.note(call, is_prepared=False)  # The answer waits for a cycle.
    assert (worker.runner.started, worker.runner.cancelled) == ([call], [])
    assert worker.take().keys() == {"a"}


def test_what_a_handler_raises_is_its_answer_and_a_mistake_is_permanent() -> None:
    worker = Worker()
    first, second, third = worker.begin("a", "b", "c")
    worker.end(first, TransientError("away"))
    worker.end(second, PermanentError("never"))
    worker.end(third, KeyboardInterrupt("no answer at all"))
    answers = worker.take()
    assert [type(each.outcome) for each in answers.values()] == [TransientError, PermanentError, PermanentError]
    assert [error for _, error, _ in worker.noted][:2] == ["away", "never"]


def test_a_time_out_counts_to_the_instant_of_the_answer_and_not_to_when_it_is_taken_up() -> None:
    worker = Worker()
    in_time, late = worker.begin("a", "b")
    worker.now += 60
    worker.end(in_time, at=103.0)
    worker.end(late, at=103.001)
    answers = worker.take()
    assert answers["a"].outcome is DONE
    assert str(answers["b"].outcome) == "the handler did not answer within 3 s (processing-timeout)"
    assert isinstance(answers["b"].outcome, TransientError)
    assert worker.runner.cancelled == []
    assert worker.calls.report().timeouts == 1


def test_a_call_that_timed_out_is_cancelled_and_holds_the_next_call_of_its_unit_until_it_ends() -> None:
    worker = Worker(limit=2)
    (call,) = worker.begin("a")
    assert worker.calls.due_in_ms() == 3_001
    worker.now += 3
    assert worker.take() == {}
    worker.now += 0.001
    assert isinstance(worker.take()["a"].outcome, TransientError)
    assert worker.runner.cancelled == [call]
    again = worker.head("a", attempts=1)
    worker.note(again)
    worker.begin("b", "c")
    assert worker.started == ["a", "b"], "a lingering call counts against the limit"
    assert worker.calls.report().lingering_units == (call.key,)
    worker.end(call)
    assert worker.take() == {}, "it was answered by its time-out"
    assert keys(worker.calls.wakes()) == ["a"]
    worker.note(again)
    worker.calls.begin()
    assert worker.started == ["a", "b", "a"]


def test_a_head_that_is_held_or_a_dead_letter_is_cancelled_and_its_answer_counts_no_more() -> None:
    worker = Worker()
    (call,) = worker.begin("a")
    worker.note_free(call)
    assert worker.runner.cancelled == [call]
    worker.note(call)  # The hold is over; the first call has not ended.
    worker.calls.begin()
    assert worker.runner.started == [call]
    worker.end(call)
    assert worker.take() == {}
    again = worker.head("a")
    worker.note(again)
    worker.calls.begin()
    worker.end(again)
    assert worker.take()["a"].call is again


def test_an_answer_that_waits_for_its_cycle_counts_no_more_when_its_unit_is_held() -> None:
    worker = Worker()
    (call,) = worker.begin("a")
    worker.end(call)
    worker.calls.take(0)
    worker.note_free(call)
    assert worker.take() == {}


def test_answers_beyond_the_output_budget_wait_and_stop_new_calls() -> None:
    worker = Worker()
    first, second, third = worker.begin("a", "b", "c")
    for each in (first, second, third):
        worker.end(each, output(1_000))
    assert worker.take(max_bytes=1_000).keys() == {"a"}
    worker.begin("d")
    assert (worker.started, worker.calls.wakes(), worker.calls.due_in_ms()) == (["a", "b", "c"], (), 0)
    assert worker.take(max_bytes=MANY).keys() == {"b", "c"}
    assert keys(worker.calls.wakes()) == ["d"]


def test_a_suspect_waits_until_no_other_call_runs_and_none_begins_beside_it() -> None:
    worker = Worker()
    worker.runner.alone.add("suspect")
    (first,) = worker.begin("a")
    suspect, other = worker.begin("suspect", "b")
    assert (worker.started, worker.calls.wakes()) == (["a"], ())
    worker.end(first)
    worker.take()
    worker.note_free(first)
    assert keys(worker.calls.wakes()) == ["suspect", "b"]
    worker.note(suspect, other)
    worker.calls.begin()
    assert (worker.started, worker.calls.wakes()) == (["a", "suspect"], ())
    worker.end(suspect)
    worker.take()
    worker.note_free(suspect)
    worker.note(other)
    worker.calls.begin()
    assert worker.started == ["a", "suspect", "b"]


def test_a_suspect_waits_for_a_lingering_call() -> None:
    worker = Worker()
    worker.runner.alone.add("suspect")
    (first,) = worker.begin("a")
    worker.now += 4
    worker.take()
    worker.note_free(first)
    (suspect,) = worker.begin("suspect")
    assert worker.started == ["a"]
    worker.end(first)
    worker.take()
    worker.note(suspect)
    worker.calls.begin()
    assert worker.started == ["a", "suspect"]


def test_answers_of_a_lost_partition_count_no_more_not_even_if_it_is_won_again() -> None:
    worker = Worker()
    lost, here = worker.head("a", partition=P1), worker.head("b")
    answered = worker.head("c", partition=P1)
    worker.note(lost, here, answered, worker.head("d", partition=P1))
    worker.calls.begin()
    worker.end(answered)
    worker.calls.take(0)
    worker.calls.drop(P1)
    assert lost in worker.runner.cancelled
    assert here not in worker.runner.cancelled
    worker.calls.wait_for(lost.key)  # It is won again. The storage knows the same head.
    again = worker.head("a", partition=P1)
    worker.note(again)
    worker.calls.begin()
    assert again not in worker.runner.started, "its first call has not ended"
    worker.end(lost)
    worker.end(here)
    assert worker.take().keys() == {"b"}
    worker.note(again)
    worker.calls.begin()
    worker.end(again)
    assert worker.take()["a"].call is again


@pytest.mark.parametrize(("waiting", "is_behind"), [(1_000, False), (1_001, True)])
def test_nothing_more_is_read_while_more_than_a_thousand_units_wait_for_their_call(waiting: int, is_behind: bool) -> None:
    worker = Worker(limit=1)
    worker.begin("running")
    for number in range(waiting):
        worker.calls.wait_for(UnitKey(P0, f"u-{number}"))
    assert worker.calls.is_behind is is_behind


def test_at_the_end_no_call_begins_and_those_under_way_are_waited_for_until_their_time_out() -> None:
    worker = Worker()
    (call,) = worker.begin("a")
    worker.note(worker.head("b"))
    assert worker.calls.finish(30.0)
    assert worker.runner.waited == [3.001]
    worker.calls.begin()
    assert worker.started == ["a"]
    worker.end(call)
    worker.take()
    assert not worker.calls.finish(30.0)
    worker.calls.close()
    assert worker.runner.is_closed


def test_the_report_names_the_longest_call() -> None:
    worker = Worker(limit=2)
    worker.begin("a")
    worker.now += 2
    worker.begin("b", "c")
    report = worker.calls.report()
    assert (report.under_way, report.waiting, report.lingering, report.longest, report.longest_ms) == (
        *(2, 1, 0), UnitKey(P0, "a"), 2_000,
    )  # fmt: skip
