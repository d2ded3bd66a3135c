"""Whatever the order, with repetitions, losses, failures and deadlines: nothing is lost or doubled, and the marks are right."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import pytest
from harness.crashes.told_marks import find_wrong_mark
from harness.driving import Driven, Envelopes, drive
from harness.examples import examples
from harness.service_under_test import Told
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from notification_service.payments.envelope import DataEnvelope
from resequencer.dead_letter import DeadLetter
from resequencer.errors import PermanentError
from resequencer.notification import Notification
from resequencer.strategies.window import OrderBy

WINDOW: dict[str, Any] = {"stash_timeout_ms": 2_000}
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "SEQUENCE": ("SEQUENCE", {}),
    "SEQUENCE from 0": ("SEQUENCE", {"first_sequence": 0}),
    "SEQUENCE from any": ("SEQUENCE", {"first_sequence": None}),
    "STRICT_SEQUENCE": ("STRICT_SEQUENCE", {}),
    "STRICT_SEQUENCE from 0": ("STRICT_SEQUENCE", {"first_sequence": 0}),
    "STRICT_SEQUENCE from any": ("STRICT_SEQUENCE", {"first_sequence": None}),
    "COMPLETE": ("COMPLETE", {"required_parts": ("created", "paid")}),
    "PREVIOUS": ("PREVIOUS", {}),
    "WINDOW by number": ("WINDOW", WINDOW | {"order_by": OrderBy.SEQUENCE}),
    "WINDOW by time": ("WINDOW", WINDOW | {"order_by": OrderBy.TIME}),
}


def started(kind: str, **more: Any) -> Driven:
    name, how = STRATEGIES[kind]
    unit = drive(name, **how, **more)
    unit.keeps_events = True
    return unit


def events_of(kind: str, make: Envelopes, now: int, flows: str) -> list[DataEnvelope]:
    """Return events in their true order, one for each letter of `flows`, which is its flow."""
    name, how = STRATEGIES[kind]
    first, made = 1 if how.get("first_sequence", 1) == 1 else 0, list[DataEnvelope]()
    for at, flow in enumerate(flows):
        number = first + (flows[:at].count(flow) if name == "STRICT_SEQUENCE" else at)
        event = make(number or 1, flow=flow, identity=f"{flow}#{number}")
        parts = ("created",) if at == 0 else ("paid",) if at == len(flows) // 2 else ()
        previous = made[-1].event_id if made else None
        made.append(replace(event, sequence=number, time=now + at, previous=previous, parts=parts))
    return made


def drain(unit: Driven) -> None:
    while unit.last is not None and unit.last.waits is not None:
        unit.expire()


def ids(unit: Driven) -> list[str]:
    """Return the ids of what left, handled or dead, in order."""
    by_offset = {offset: event.event_id for offset, event in unit.came.items()}
    dead = [by_offset[each.record.origin.offset] for each in unit.left if isinstance(each, DeadLetter)]
    return [each.notification_id for each in unit.left if isinstance(each, Notification)] + dead


def notifications_of(unit: Driven, unit_name: str = "uow-1") -> list[Told]:
    """Return the notifications, as the judge of the simulations reads them."""
    by_id = {event.event_id: (event, marks) for event, _, marks, _ in unit.handler.seen}
    found = [by_id[each.notification_id] for each in unit.left if isinstance(each, Notification)]
    return [
        Told("", unit_name, f"{unit_name}#{event.event_id}", event.sequence, (), marks.incomplete, marks.late, False)
        for event, marks in found
    ]


@pytest.mark.parametrize("kind", list(STRATEGIES))
def test_every_permutation_of_five_comes_out_in_order_unmarked_though_the_unit_is_loaded_for_each(kind: str) -> None:
    for order in permutations(range(5)):
        unit = started(kind)
        events = events_of(kind, Envelopes(), unit.now, "AAAAA")
        unit.reincarnates = True
        # What comes first begins where the numbers begin with any.
        came = [0, *(each for each in order if each)] if kind.endswith("any") else order
        unit.arrive(*(events[each] for each in came))
        drain(unit)
        assert sorted(ids(unit)) == sorted(each.event_id for each in events)
        assert not any(marks.late or marks.incomplete for marks in unit.marks)
        if kind != "COMPLETE":
            assert ids(unit) == [each.event_id for each in events]


@pytest.mark.parametrize("kind", list(STRATEGIES))
@settings(max_examples=examples(40), deadline=None)
@given(st.text("AB", min_size=2, max_size=40), st.integers(), st.booleans())
def test_nothing_is_lost_or_doubled_and_every_mark_is_right(kind: str, flows: str, seed: int, reincarnates: bool) -> None:
    chance = Random(seed)
    unit = started(kind, stash_limit=chance.choice((3, 1_000)))
    unit.reincarnates, make = reincarnates, Envelopes()
    events = [each for each in events_of(kind, make, unit.now, flows) if chance.random() < 0.9]
    for each in events:
        if chance.random() < 0.05:
            unit.handler.breaks[each.event_id] = PermanentError("never")
    came = sorted(events, key=lambda each: (each.time or 0) + chance.uniform(0, 9))
    dead = {each.event_id for each in events if each.event_id in unit.handler.breaks}
    for at, each in enumerate(came):
        unit.now += chance.choice((0, 0, 700))
        unit.arrive(each)
        again = came[chance.randrange(at + 1)]
        if chance.random() < 0.1 and again.event_id not in dead:
            unit.arrive(make.again(again))
        if chance.random() < 0.1 and unit.last is not None and unit.last.waits is not None:
            unit.expire()
    drain(unit)
    assert sorted(ids(unit)) == sorted(each.event_id for each in events)
    assert unit.stored is None or unit.stored.stash == ()
    assert find_wrong_mark(notifications_of(unit), unit.strategy.name.partition("[")[0]) is None
