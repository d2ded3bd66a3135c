"""A user's own data handler: what it raises costs its event, and what another one has stored is refused."""

import asyncio
from typing import Any

import pytest
from harness.driving import PARTITION, Envelopes, NoChance, decoder, drive

from notification_service.events.own_data import ForeignDataHandler, Kept, OpeningHandler, make_data_handler
from notification_service.events.own_format import make_event
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import ConfigurationError, PermanentError, TooLarge
from resequencer.event import Event
from resequencer.handler import UNMARKED, Handled, Marks
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition, Record
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import StorageRefused
from resequencer.strategies.registry import StrategySettings, make_known_strategy
from resequencer.turn.decide import take_turn
from resequencer.turn.poison import take_careful_turn
from resequencer.turn.turn import TurnContext
from resequencer.unit_codec import UnitCodec

EVENT = make_event(Record(Origin(Partition("T", 0), 7), b"value", b"k"), "order-1", parts=("paid",))


class Parts:
    """Keeps the parts that came, in order."""

    empty: tuple[str, ...] = ()

    def absorb(self, data: tuple[str, ...], event: Event) -> tuple[str, ...]:
        return (*data, *event.parts)

    def fill(self, data: tuple[str, ...], event: Event) -> tuple[str, ...]:
        return (*data, *(each for each in event.parts if each not in data))

    def encode(self, data: tuple[str, ...]) -> bytes:
        return b"parts:" + ",".join(data).encode()

    def decode(self, stored: bytes) -> tuple[str, ...]:
        if not stored.startswith(b"parts:"):
            raise ValueError("not mine")
        return tuple(stored.decode()[6:].split(","))


def foreign(**methods: Any) -> ForeignDataHandler:
    return ForeignDataHandler(type("Own", (Parts,), methods)(), "own:Data", 100)


def raising(*_: Any) -> Any:
    raise SystemExit(3)


def kept(data: Any) -> Kept:
    return Kept(data, b"before")


def test_data_come_from_the_users_class_and_are_read_back() -> None:
    handler = foreign()
    two = handler.absorb(handler.absorb(handler.empty, EVENT), EVENT)
    assert two.data == ("paid", "paid")
    assert handler.fill(two, EVENT).data == two.data
    stored = handler.encode(two)
    assert (stored, handler.size_of(two)) == (b"parts:paid,paid", len(stored))
    again = foreign().decode(stored)
    assert (again.data, foreign().size_of(again)) == (two.data, len(stored))


def test_the_data_of_a_new_unit_are_not_stored_and_the_same_ones_that_come_back_are() -> None:
    handler = foreign(absorb=lambda _, data, event: Parts.empty)
    assert (handler.encode(handler.empty), handler.absorb(handler.empty, EVENT) is handler.empty) == (b"", True)
    back = handler.absorb(kept(("paid",)), EVENT)
    assert (back.data, back.stored, back is handler.empty) == (Parts.empty, b"parts:", False)


def test_a_handler_gets_what_is_kept() -> None:
    class Noting:
        def handle(self, *given: Any) -> Any:
            return given

        def with_lookups(self, lookups: object) -> "Noting":
            assert lookups == "lookups"
            return self

    handler = OpeningHandler(Noting()).with_lookups("lookups")
    assert handler.handle(EVENT, kept("data"), UNMARKED, 5) == (EVENT, "data", UNMARKED, 5)
    assert handler.call is None


def test_a_handler_that_waits_gets_the_data_themselves_too() -> None:
    class Waiting:
        async def call(self, *given: Any) -> Any:
            return given

    handler = OpeningHandler(Waiting())
    assert handler.call is not None
    assert asyncio.run(handler.call(EVENT, kept("data"), UNMARKED, 5)) == (EVENT, "data", UNMARKED, 5)  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ({"absorb": raising, "fill": raising}, "raised SystemExit: 3"),
        ({"encode": raising}, "raised SystemExit: 3"),
        ({"encode": lambda *_: "text"}, "raised TypeError: encode returned 'text' instead of some bytes"),
        ({"encode": lambda *_: b""}, "raised TypeError: encode returned b'' instead of some bytes"),
        ({"decode": raising}, "raised SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("call", ["absorb", "fill"])
def test_what_fails_costs_the_event_that_brought_the_data(methods: dict[str, Any], expected: str, call: str) -> None:
    handler = foreign(**methods)
    with pytest.raises(PermanentError, match=f"^data handler own:Data {expected}"):
        getattr(handler, call)(handler.empty, EVENT)


def test_what_it_cannot_read_is_refused() -> None:
    with pytest.raises(PermanentError, match=r"^data handler own:Data raised ValueError: not mine"):
        foreign().decode(b"\x93\x90\x90\x90")


def test_a_unit_has_no_more_data_than_its_limit() -> None:
    handler = foreign()
    data = handler.absorb(kept(("x" * 89,)), EVENT)
    handler.refuse_too_much(data, EVENT, 100, handler.size_of(data))
    for call in (handler.absorb, handler.fill):
        with pytest.raises(TooLarge, match=r"would have 101 bytes of data with this event; the limit is 100 \(stash-limit"):
            call(kept(("x" * 90,)), EVENT)


def test_the_event_is_in_flight_during_the_call() -> None:
    calls: list[Any] = []

    class Noting:
        def take(self, envelope: Event, kind: CallKind) -> None:
            calls.append((envelope, kind))

        def postpone(self, envelope: Event) -> None:
            pass

        def clear(self) -> None:
            calls.append(None)

    handler = ForeignDataHandler(Parts(), "own:Data", 100, Noting())
    handler.absorb(handler.empty, EVENT)
    assert calls == [(EVENT, CallKind.KEEPING), None]


def test_none_keeps_nothing_and_an_unknown_class_is_refused_with_the_key() -> None:
    nothing = make_data_handler("none", {}, 100)
    assert nothing.encode(nothing.fill(nothing.absorb(nothing.empty, EVENT), EVENT)) == b""
    nothing.refuse_too_much(nothing.empty, EVENT, 0, 0)
    assert (nothing.size_of(nothing.empty), nothing.decode(b"old")) == (0, nothing.empty)
    for name, problem in (
        ("nowhere:Data", "cannot be imported"),
        ("collections:OrderedDict", "it has no absorb, fill, encode, decode"),
    ):
        with pytest.raises(ConfigurationError, match=f"^payment-status-notification.data-handler: '{name}'.*{problem}"):
            make_data_handler(name, {}, 100)


def test_a_unit_whose_data_another_data_handler_stored_is_refused_and_both_are_named() -> None:
    unit = drive("SEQUENCE")
    unit.arrive(Envelopes()(1, mds=["PAIN_001"]))
    codec = UnitCodec(make_known_strategy(StrategySettings("SEQUENCE"), "strategy"), decoder().decode, foreign())
    problem = (
        r"'uow-1': its data are .* of another data handler \(data handler own:Data raised ValueError: not mine\); configure that"
    )
    with pytest.raises(StorageRefused, match=problem):
        codec.restore(PARTITION, unit.stored)


def test_stashed_events_whose_data_cannot_be_kept_are_dead_letters_when_the_others_are_gathered() -> None:
    def absorb(self: Parts, data: tuple[str, ...], event: Event) -> tuple[str, ...]:
        if event.parts[0] == "torn":
            raise ValueError("no receipt")
        return (*data, *event.parts)

    envelopes = Envelopes()
    seen: list[tuple[int, Any]] = []

    class Seeing:
        def handle(self, event: Event, data: Any, marks: Marks, now: int) -> Handled:
            seen.append((event.offset, data))
            return Handled()

    strategy = make_known_strategy(StrategySettings("COMPLETE", required_parts=("paid", "sent")), "strategy")
    context = TurnContext(strategy, OpeningHandler(Seeing()), foreign(absorb=absorb), ResequencerSettings(), NoChance())
    came = tuple(envelopes(number, mds=[part]) for number, part in enumerate(("paid", "torn", "sent"), 1))
    unit = context.new_unit("uow-1")
    for each in came[:2]:
        take_turn(unit, (each,), (), 0, context)
    with pytest.raises(PermanentError):
        take_turn(unit, came[2:], (), 0, context)
    unit = context.new_unit("uow-1")
    for each in came[:2]:
        take_turn(unit, (each,), (), 0, context)
    turn = take_careful_turn(unit, came[2:], (), 0, context)
    (dead_letter,) = turn.output
    assert isinstance(dead_letter, DeadLetter)
    assert (dead_letter.record.origin.offset, dead_letter.reason) == (came[1].offset, DeadLetterReason.HANDLER_FAILED)
    assert dead_letter.error == "data handler own:Data raised ValueError: no receipt"
    both = ("paid", "sent")
    assert sorted(seen) == [(came[0].offset, both), (came[2].offset, both)]
