"""A user's own data handler: what it raises costs its event, and what another one has stored is refused."""

from typing import Any

import pytest
from harness.driving import PARTITION, Envelopes, decoder, drive

from notification_service.events.own_data import ForeignDataHandler, make_data_handler
from notification_service.events.own_format import make_event
from resequencer.errors import ConfigurationError, PermanentError, TooLarge
from resequencer.event import Event
from resequencer.handler import DataHandler
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition, Record
from resequencer.storage_port import StorageRefused
from resequencer.strategies.registry import StrategySettings, make_known_strategy
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
    return ForeignDataHandler(type("Own", (Parts,), methods)(), "own:Data")


def raising(*_: Any) -> Any:
    raise SystemExit(3)


def test_data_come_from_the_users_class_and_are_read_back() -> None:
    handler: DataHandler = foreign()
    data = handler.absorb(handler.absorb(handler.empty, EVENT), EVENT)
    assert data == ("paid", "paid")
    assert handler.fill(data, EVENT) == data
    stored = handler.encode(data)
    assert (stored, handler.size_of(data)) == (b"parts:paid,paid", len(stored))
    again = foreign()
    assert again.decode(stored) == data
    assert again.size_of(again.decode(stored)) == len(stored)


def test_the_data_of_a_new_unit_are_not_stored() -> None:
    handler = foreign(encode=raising)
    assert (handler.encode(handler.empty), handler.size_of(handler.empty)) == (b"", 0)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"absorb": raising, "fill": raising}, "raised SystemExit: 3"),
        ({"encode": raising}, "raised SystemExit: 3"),
        ({"encode": lambda *_: "text"}, "raised TypeError: encode returned 'text' instead of some bytes"),
        ({"encode": lambda *_: b""}, "raised TypeError: encode returned b'' instead of some bytes"),
        ({"decode": raising}, "raised SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("call", ["absorb", "fill"])
def test_what_fails_costs_the_event_that_brought_the_data(methods: dict[str, Any], said: str, call: str) -> None:
    handler = foreign(**methods)
    with pytest.raises(PermanentError, match=f"^data handler own:Data {said}"):
        getattr(handler, call)(handler.empty, EVENT)


def test_what_it_cannot_read_is_refused() -> None:
    with pytest.raises(PermanentError, match=r"^data handler own:Data raised ValueError: not mine"):
        foreign().decode(b"\x93\x90\x90\x90")


def test_a_unit_has_no_more_data_than_its_limit() -> None:
    handler = foreign()
    handler.refuse_too_much((), EVENT, 100, 94)
    with pytest.raises(TooLarge, match=r"has 95 bytes of data and the record 6; the limit is 100 \(stash-limit"):
        handler.refuse_too_much((), EVENT, 100, 95)


def test_the_event_is_in_flight_during_the_call() -> None:
    calls: list[Any] = []

    class Noting:
        def take(self, envelope: Event, kind: CallKind) -> None:
            calls.append((envelope, kind))

        def postpone(self, envelope: Event) -> None:
            pass

        def clear(self) -> None:
            calls.append(None)

    handler = ForeignDataHandler(Parts(), "own:Data", Noting())
    handler.absorb((), EVENT)
    assert calls == [(EVENT, CallKind.KEEPING), None]


def test_none_keeps_nothing_and_an_unknown_class_is_refused_with_the_key() -> None:
    nothing = make_data_handler("none", {})
    assert nothing.encode(nothing.fill(nothing.absorb(nothing.empty, EVENT), EVENT)) == b""
    nothing.refuse_too_much(nothing.empty, EVENT, 0, 0)
    assert (nothing.size_of(nothing.empty), nothing.decode(b"old")) == (0, nothing.empty)
    for name, said in (
        ("nowhere:Data", "cannot be imported"),
        ("collections:OrderedDict", "it has no absorb, fill, encode, decode"),
    ):
        with pytest.raises(ConfigurationError, match=f"^payment-status-notification.data-handler: '{name}'.*{said}"):
            make_data_handler(name, {})


def test_a_unit_whose_data_another_data_handler_stored_is_refused_and_both_are_named() -> None:
    unit = drive("SEQUENCE")
    unit.arrive(Envelopes()(1, mds=["PAIN_001"]))
    codec = UnitCodec(make_known_strategy(StrategySettings("SEQUENCE"), "strategy"), decoder().decode, foreign())
    said = (
        r"'uow-1': its data are .* of another data handler \(data handler own:Data raised ValueError: not mine\); configure that"
    )
    with pytest.raises(StorageRefused, match=said):
        codec.restore(PARTITION, unit.stored)
