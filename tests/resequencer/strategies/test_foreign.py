"""A user's own strategy: an error or a wrong answer costs only its envelope, and the unit continues."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness.driving import Driven, Envelopes
from msgspec.structs import replace

from notification_service.payments.envelope import DataEnvelope
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ConfigurationError, EndedItsWorker, PermanentError
from resequencer.in_flight import CallKind
from resequencer.strategies.port import Rank, StrategyState
from resequencer.strategies.previous import Previous
from resequencer.strategies.registry import ForeignStrategy, StrategySettings, make_known_strategy
from resequencer.strategies.sequence import StrictSequence


class Panic(BaseException):
    """A panic of a Rust extension is no Exception either."""


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Undecided:
    """Like a numpy array: neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


class Text(str):
    """A subclass of str, such as numpy's `str_`."""

    __slots__ = ()


def strategy_that(question: str, **answers: Any) -> ForeignStrategy:
    """Return a strategy that accepts envelopes in order of arrival; on number 13 the question raises or answers as given."""

    def answer(self: Any, *arguments: Any) -> Any:
        if arguments[-1].sequence != 13:
            return getattr(StrictSequence, question)(self, *arguments) if question != "accepts" else True
        if "raises" in answers:
            raise answers["raises"]
        return answers["returns"]

    kept = {question: answer}
    if question != "accepts":
        kept["accepts"] = lambda self, state, envelope: True
    return ForeignStrategy(type("Users", (StrictSequence,), kept)(), "users_own:Strategy")


@pytest.mark.parametrize("question", ["rank", "observe", "accepts", "handled", "is_late"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("thirteen"),
        asyncio.CancelledError("thirteen"),
        GeneratorExit("thirteen"),
        SystemExit("thirteen"),
        Panic("thirteen"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_it_raises_costs_one_dead_letter(question: str, error: BaseException, envelopes: Envelopes) -> None:
    unit = Driven(strategy_that(question, raises=error))
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]
    (letter,) = unit.dead
    assert letter.reason is DeadLetterReason.HANDLER_FAILED
    assert letter.error.startswith(f"strategy users_own:Strategy failed: {type(error).__name__}: thirteen")


def test_an_error_whose_text_cannot_be_had_costs_one_dead_letter(envelopes: Envelopes) -> None:
    unit = Driven(strategy_that("accepts", raises=Wordless()))
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]
    assert "Wordless" in unit.dead[0].error


@pytest.mark.parametrize("question", ["accepts", "is_late"])
def test_an_answer_that_is_neither_yes_nor_no_costs_one_dead_letter(question: str, envelopes: Envelopes) -> None:
    unit = Driven(strategy_that(question, returns=Undecided()))
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]
    assert "ambiguous" in unit.dead[0].error


def test_an_interrupt_is_no_error_of_a_strategy(envelopes: Envelopes) -> None:
    unit = Driven(strategy_that("accepts", raises=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        unit.arrive(envelopes(13))


class Waiting(StrictSequence):
    """Number 13 waits."""

    def accepts(self, state: Any, envelope: Any) -> bool:
        return bool(envelope.sequence != 13)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("\ud800", "?"),
        (Text("thirteen"), "thirteen"),
        ("13" * 1_000_000, "13"),
        (asyncio.CancelledError(), "unknown"),
        (Undecided(), "Undecided"),
    ],
    ids=["no text of Unicode", "a type of its own", "without end", "raises", "no text"],
)
def test_what_it_says_is_missing_can_always_be_stored(answer: Any, expected: str, envelopes: Envelopes) -> None:
    class Naming(Waiting):
        def missing(self, state: Any, envelope: Any) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

    unit = Driven(ForeignStrategy(Naming(), "users_own:Naming"))
    waits = unit.arrive(envelopes(13)).waits
    assert waits is not None
    assert type(waits.waits_for) is str
    assert expected in waits.waits_for.encode().decode()
    assert len(waits.waits_for) <= 1_000


def test_a_state_that_could_not_be_read_again_costs_one_dead_letter(envelopes: Envelopes) -> None:
    """The state is written without a check, and found to be wrong when its unit is loaded. Otherwise each start
    would end there.
    """

    class Counted(StrategyState, frozen=True, array_like=True):
        count: int = 0

    class Counting(StrictSequence):
        state_type = Counted  # type: ignore[assignment]

        def initial(self) -> Any:
            return Counted()

        def accepts(self, state: Any, envelope: Any) -> bool:
            return True

        def observe(self, state: Any, envelope: Any) -> Any:
            return state

        def is_late(self, state: Any, envelope: Any) -> bool:
            return False

        def handled(self, state: Any, envelope: Any) -> Any:
            return Counted("one" if envelope.sequence == 13 else state.count + 1)  # type: ignore[arg-type]

        def dead_lettered(self, state: Any, envelope: Any) -> Any:
            return state

    unit = Driven(ForeignStrategy(Counting(), "users_own:Counting"), reincarnates=True)
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]
    assert "Expected `int`, got `str`" in unit.dead[0].error


def test_a_new_unit_begins_without_asking_it_again(envelopes: Envelopes) -> None:
    """A failure there is no envelope's fault, and the worker would end at each start."""

    class Once(StrictSequence):
        asked = 0

        def initial(self) -> Any:
            self.asked += 1
            if self.asked > 1:
                raise asyncio.CancelledError
            return super().initial()

    strategy = ForeignStrategy(Once(), "users_own:Once")
    for _ in range(2):
        unit = Driven(strategy)
        unit.arrive(envelopes(1))
        assert unit.sequences[-1:] == [1]


@pytest.mark.parametrize("ending", [asyncio.CancelledError, SystemExit, Panic])
def test_one_that_ends_the_process_when_it_is_made_is_refused(
    ending: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "strategy_that_ends.py").write_text("class Ends:\n    def __init__(self, settings): raise self.ending()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import strategy_that_ends  # type: ignore[import-not-found]

    monkeypatch.setattr(strategy_that_ends.Ends, "ending", ending, raising=False)
    with pytest.raises(ConfigurationError, match=re.escape(f"cannot be used: {ending.__name__}")):
        make_known_strategy(StrategySettings("strategy_that_ends:Ends"), "strategy")


def test_a_rank_that_is_none_costs_one_dead_letter(envelopes: Envelopes) -> None:
    unit = Driven(strategy_that("rank", returns=Rank("", None)))  # type: ignore[arg-type]
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]


class Linked(Previous):
    """A user's strategy with lanes that others free; it fails on what follows number 13."""

    def next_lane(self, envelope: Any) -> Any:
        if envelope.sequence == 13:
            raise ValueError("unlucky")
        return super().next_lane(envelope)


def test_one_whose_lanes_free_others_does_so_and_what_fails_frees_none(envelopes: Envelopes) -> None:
    unit = Driven(ForeignStrategy(Linked(), "users_own:Strategy"))
    made = [replace(envelopes(number, identity=f"e{number}"), previous=f"e{number - 1}") for number in range(11, 16)]
    unit.arrive(*reversed(made), replace(envelopes(10, identity="e10"), previous=None))
    assert unit.sequences == [10, 11, 12, 13]
    unit.expire()
    assert unit.sequences == [10, 11, 12, 13, 14, 15]
    assert unit.dead == []


def test_the_family_of_its_errors_is_one(envelopes: Envelopes) -> None:
    strategy = strategy_that("accepts", raises=Panic("x"))
    with pytest.raises(PermanentError):
        strategy.accepts(strategy.initial(), envelopes(13))


class InFlight:
    """Records the calls; refuses sequence 13 on demand."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.noted: list[Any] = []
        self.refuses = refuses

    def take(self, envelope: DataEnvelope, kind: CallKind) -> None:
        if self.refuses and envelope.sequence == 13:
            raise EndedItsWorker("asking the strategy about it ended 3 workers")
        self.noted.append((kind, envelope.sequence))

    def postpone(self, envelope: DataEnvelope) -> None:
        raise AssertionError("a question is not put off")

    def clear(self) -> None:
        self.noted.append("cleared")


@pytest.mark.parametrize("question", ["rank", "observe", "accepts", "handled", "forced", "dead_lettered", "is_late", "missing"])
@pytest.mark.parametrize("fails", [False, True], ids=["it answers", "it fails"])
def test_what_it_is_asked_about_stands_in_the_hand_meanwhile(question: str, fails: bool) -> None:
    in_flight, envelope = InFlight(), Envelopes()(13)
    failing = strategy_that(question, raises=ValueError("unlucky"))._strategy
    strategy = ForeignStrategy(failing if fails else StrictSequence(), "users_own:Strategy", in_flight)
    arguments = (envelope,) if question == "rank" else (strategy.initial(), envelope)
    with suppress(PermanentError):
        getattr(strategy, question)(*arguments)
    assert in_flight.noted == [(CallKind.ASKING, 13), "cleared"]


def test_what_ended_workers_when_it_was_asked_about_leaves_for_that_and_the_others_go_on() -> None:
    class Everything(StrictSequence):
        def accepts(self, state: Any, envelope: DataEnvelope) -> bool:
            return True

    unit = Driven(ForeignStrategy(Everything(), "users_own:Strategy", InFlight(refuses=True)))
    envelopes = Envelopes()
    unit.arrive(envelopes(1), envelopes(13), envelopes(2))
    assert [each.reason for each in unit.dead] == [DeadLetterReason.ENDED_ITS_WORKER]
    assert unit.sequences == [1, 2]


def test_so_does_one_that_waited_and_is_asked_about_when_its_unit_is_restored() -> None:
    in_flight = InFlight()
    unit = Driven(ForeignStrategy(StrictSequence(), "users_own:Strategy", in_flight))
    envelopes = Envelopes()
    unit.arrive(envelopes(2), envelopes(13))
    in_flight.refuses = True
    unit.reincarnate()
    unit.arrive(envelopes(1))
    assert [each.reason for each in unit.dead] == [DeadLetterReason.ENDED_ITS_WORKER]
    assert unit.sequences == [1, 2]
