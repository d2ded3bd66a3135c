"""The orders of a shop: CloudEvents that the service reads as they are expected."""

from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest

from notification_service.connectors.line_format import Defect, Line, decode_line
from notification_service.events.cloudevents import CloudEvent, CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.simulator.expectation import record_digest
from notification_service.simulator.generate.plan import Events, Flows, Keys, Numbering, Plan
from notification_service.simulator.generate.shop import EVERY_ORDER, make_shop
from resequencer.event import Refusal
from resequencer.record import Origin, Partition, Record

SHOP: dict[str, Any] = {"events": Events.SHOP, "seed": 5}
DECODER = CloudEventDecoder(DecodingSettings(needs_sequence=True, needs_time=True))


def read(line: Line) -> CloudEvent | Refusal:
    return DECODER.decode(Record(Origin(Partition("in", 0), 0), line.value, line.key, line.headers))


def orders(count: int = 200, **fields: Any) -> list[Any]:
    maker = make_shop(Plan(units=count, **(SHOP | fields)))
    return [maker.unit(number) for number in range(count)]


def test_each_event_is_read_as_it_is_expected():
    for order in orders():
        times = []
        for each in order.envelopes:
            found, expected = read(Line(each.value, order.key, each.headers)), each.expected
            assert isinstance(found, CloudEvent), found
            assert (found.unit, found.event_id) == (order.expected.unit, expected.envelope_id)
            assert (found.flow, found.sequence, found.parts) == (expected.flow, expected.sequence, expected.parts)
            assert expected.digest == record_digest(order.key, each.headers, each.value)
            times.append(found.time)
        assert all(one < other for one, other in pairwise(times)), "by time they are in their true order"
        assert {kind for each in order.envelopes for kind in each.expected.parts} >= {*EVERY_ORDER}


def test_they_are_what_a_shop_may_send():
    """Both modes, nulls, what is no text, headers that repeat or have our names, and a unit that is not the subject."""
    made = orders()
    headers = [dict(each.headers) for order in made for each in order.envelopes]
    structured = sum("ce_id" not in each for each in headers) / len(headers)
    assert 0.2 < structured < 0.3
    for is_there in (
        any(b"\xff" in (each.value or b"") for order in made for each in order.envelopes),
        any(b"\n" in (each.value or b"") for order in made for each in order.envelopes),
        any(each.value is None for order in made for each in order.envelopes),
        any(b"\xff" in (order.key or b"") for order in made),
        any(order.key is None for order in made),
        any(len(each.headers) != len(dict(each.headers)) for order in made for each in order.envelopes),
        any("resequencer-incomplete" in each for each in headers),
        any("ce_partitionkey" in each for each in headers),
    ):
        assert is_there


def test_an_event_names_the_one_before_it_of_its_source():
    for order in orders(50, flows=Flows.TWO):
        last = dict[str, str]()
        for each in order.envelopes:
            found = read(Line(each.value, order.key, each.headers))
            assert found.attributes.get("previousid") == last.get(found.flow)
            last[found.flow] = found.attributes["id"]


@pytest.mark.parametrize("numbering", [Numbering.SHARED, Numbering.SEPARATE])
def test_sources_share_a_numbering_or_have_one_each(numbering: Numbering):
    for order in orders(50, flows=Flows.TWO, numbering=numbering):
        numbers = [(each.expected.flow if numbering == "separate" else "", each.expected.sequence) for each in order.envelopes]
        counts = Counter(lane for lane, _ in numbers)
        assert sorted(numbers) == sorted((lane, number) for lane, of in counts.items() for number in range(1, of + 1))


def test_a_busy_order_has_as_many_events_as_a_busy_payment():
    assert max(len(each.envelopes) for each in orders(20, keys=Keys.ZIPF)) == 512


def test_a_contradiction_has_another_content_under_the_same_id():
    plan = Plan(units=40, **SHOP)
    maker = make_shop(plan)
    for order in orders(40):
        for index, each in enumerate(order.envelopes):
            other = maker.contradict(order, index)
            first, second = (read(Line(one.value, order.key, one.headers)) for one in (each, other))
            assert (first.event_id, first.sequence) == (second.event_id, second.sequence)
            assert first.digest != second.digest
            assert other.expected.digest == record_digest(order.key, other.headers, other.value)


def test_garbage_is_refused_with_its_reason():
    dealt = list(islice(make_shop(Plan(units=1, **SHOP)).garbage(Random(3)), 60))
    assert len({each.kind for each in dealt}) == 9
    for each in dealt:
        line = decode_line(each.line[:-1])
        refused = read(Line(each.line) if isinstance(line, Defect) else line)
        assert isinstance(refused, Refusal), each
        assert refused.reason is each.reason


def test_a_plan_writes_the_same_bytes_again(run: Callable):
    first, again = run("first", **SHOP), run("again", **SHOP)
    assert first.partition() == again.partition()
    assert first.expected_lines == again.expected_lines
    calm = run("calm", **SHOP, duplicates=0, losses=0, late=0, garbage=0)
    assert {each.unit for each in calm.units} == {each.unit for each in first.units}
    assert {one.digest for each in calm.units for one in each.envelopes} == {
        one.digest for each in first.units for one in each.envelopes
    }
