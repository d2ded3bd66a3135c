"""To which payment the next envelope belongs."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from notification_service.simulator.generate.flows import AGAIN, Happening, draw_events, lengthened
from notification_service.simulator.generate.plan import Keys, Plan
from notification_service.simulator.generate.simulation import UNITS_AT_ONCE, make_maker, mixed
from notification_service.simulator.generate.units import BUSIEST, envelopes_of

CALM: dict[str, Any] = {"duplicates": 0, "losses": 0, "late": 0, "garbage": 0}


def stream(units: int, keys: Keys, exponent: float = 1.0) -> list[str]:
    plan = Plan(units=units, seed=4, keys=keys, exponent=exponent)
    return [place.unit.simulated.expected.unit for place in mixed(plan, make_maker(plan), Random(1))]


def test_with_uniform_keys_all_payments_are_about_alike():
    counts = Counter(stream(500, Keys.UNIFORM))
    assert max(counts.values()) <= 12


@pytest.mark.parametrize("exponent", [1.0, 1.5])
def test_with_zipf_keys_the_kth_busiest_has_its_share_down_to_what_every_payment_has(exponent: float):
    sizes = sorted(Counter(stream(300, Keys.ZIPF, exponent)).values(), reverse=True)
    for rank, size in enumerate(sizes, start=1):
        expected = round(BUSIEST / rank**exponent)
        assert size == expected if expected > 12 else 4 <= size <= 12


@pytest.mark.slow
def test_the_busier_a_payment_the_likelier_it_is_the_next():
    plan = Plan(units=1_000, seed=4, keys=Keys.ZIPF)
    open_at: dict[str, int] = {}
    gaps: dict[str, list[int]] = {}
    for at, unit in enumerate(stream(1_000, Keys.ZIPF)):
        if unit in open_at:
            gaps.setdefault(unit, []).append(at - open_at[unit])
        open_at[unit] = at
    busiest = max(range(1_000), key=lambda number: envelopes_of(plan, number))
    others = [gap for unit, each in gaps.items() if len(each) < 12 for gap in each]
    own = gaps[f"sim-4-{busiest:07d}"]
    assert sum(own) / len(own) < 4
    assert sum(others) / len(others) > 10 * sum(own) / len(own)


def test_every_thousand_payments_has_its_busiest():
    plan = Plan(units=2_500, seed=4, keys=Keys.ZIPF)
    sizes = [envelopes_of(plan, number) for number in range(2_500)]
    for block in (sizes[:1_000], sizes[1_000:2_000]):
        assert sorted(block, reverse=True) == [round(BUSIEST / rank) for rank in range(1, 1_001)]
    assert max(sizes[2_000:]) == BUSIEST


@pytest.mark.parametrize("keys", Keys)
def test_no_more_payments_are_under_way_than_stated(keys: Keys):
    under_way: dict[str, Any] = {}
    plan = Plan(units=400, seed=4, keys=keys)
    for place in mixed(plan, make_maker(plan), Random(1)):
        name = place.unit.simulated.expected.unit
        under_way[name] = place
        if place.at == len(place.unit.simulated.envelopes) - 1:
            del under_way[name]
        assert len(under_way) <= UNITS_AT_ONCE


def test_a_longer_course_keeps_its_beginning_its_end_and_its_order():
    course = draw_events(Random(3), two_flows=True)
    longer = lengthened(course, 100, Random(1), AGAIN)
    assert len(longer) == 100
    assert (longer[0], longer[-1]) == (course[0], course[-1])
    remaining = iter(longer)
    assert all(each in remaining for each in course)
    assert lengthened(course, 3, Random(1), AGAIN) == course
    assert Happening("PaymentInitiationFlow", ("PaymentPending",)) in longer


@pytest.mark.slow
def test_busy_payments_are_put_in_order_like_any_other(served: Callable):
    service = served()
    summary = service.simulate(keys=Keys.ZIPF, units=60, late=0)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert summary.envelopes > 60 * 12
