"""Events of a shop in other formats than IPF's: they leave as they came, in order and once, though the worker is killed."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until
from msgspec.structs import replace

from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.supervision.exit_code import ExitCode

pytestmark = pytest.mark.slow
ORDERS, EACH = 60, 6
SHOP = (
    f"{NOTIFICATION}.handler=pass-through",
    f"{NOTIFICATION}.aggregation.enabled=false",
    f"{RESEQUENCER}.storage-type=embedded",
)
TYPES = ("created", "paid", "packed", "sent", "delivered", "reviewed")

Make = Callable[[int, int], Line]


def cloud_event(order: int, number: int) -> Line:
    attributes = {
        "specversion": "1.0", "id": f"{order}-{number}", "source": "https://shop.example", "type": TYPES[number - 1],
        "subject": f"order-{order}", "sequence": f"{number:03}",
    }  # fmt: skip
    if number > 1:
        attributes["previousid"] = f"{order}-{number - 1}"
    headers = (("content-type", b"application/json"), *((f"ce_{name}", text.encode()) for name, text in attributes.items()))
    return Line(json.dumps({"order": order, "number": number}).encode(), b"\xffkey", headers)


def change(order: int, number: int) -> Line:
    """Return a record with its number, its id and that of the one before it in headers, and a value that is no text."""
    headers = (("version", f"{number - 1}"), ("id", f"{order}-{number}"), ("after", f"{order}-{number - 1}"))
    given = tuple((name, text.encode()) for name, text in headers[: 2 + (number > 1)])
    return Line(b"\x00\xff" + bytes([order, number]), f"order-{order}".encode(), given)


def shuffled(make: Make, chance: random.Random, orders: range) -> list[Line]:
    """Return all events of these orders, some of them twice, each order's out of order."""
    events = [(order, number) for order in orders for number in range(1, EACH + 1)]
    events.sort(key=lambda each: each[1] * 20 + chance.randrange(70))
    return [make(*each) for one in events for each in [one] * (2 if chance.random() < 0.1 else 1)]


FORMATS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "cloudevents": (cloud_event, (f"{INGRESS}.events.format=cloudevents",)),
    "mapped": (
        change,
        (
            f"{INGRESS}.events.format=mapped",
            f'{INGRESS}.events.mapped {{ sequence = "header:version", id = "header:id", previous = "header:after" }}',
            f"{RESEQUENCER}.first-sequence=0",
        ),
    ),
}
STRATEGIES = {
    "sequence": (f"{RESEQUENCER}.strategy=SEQUENCE",),
    "strict": (f"{RESEQUENCER}.strategy=STRICT_SEQUENCE",),
    "previous": (f"{RESEQUENCER}.strategy=PREVIOUS",),
    "window": (f"{RESEQUENCER} {{ strategy = WINDOW, order-by = sequence, reorder-window = 3s }}",),
}


def own(line: Line) -> tuple[Any, ...]:
    """Return what came in: without our headers behind it."""
    return line.key, tuple(each for each in line.headers if not each[0].startswith("resequencer-")), line.value


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("form", list(FORMATS))
def test_they_leave_as_they_came_in_order_and_once(new_service: Callable[..., OperatedService], form: str, strategy: str) -> None:
    make, settings = FORMATS[form]
    service, chance = new_service(*SHOP, *settings, *STRATEGIES[strategy]), random.Random(f"{form} {strategy}")
    service.in_directory.mkdir(parents=True)
    source = service.in_directory / "partition-0.jsonl"
    early, late = ([encode_line(each) for each in shuffled(make, chance, orders)] for orders in (range(30), range(30, ORDERS)))
    out = service.out_directory / "notifications.jsonl"
    source.write_bytes(b"".join(early))
    service.start()
    wait_until(lambda: out.exists() and out.stat().st_size, "something leaves", look_seconds=0)
    with source.open("ab") as appended:
        appended.write(b"".join(late))
    service.kill()
    service.start_and_wait()
    wait_until(lambda: out.read_bytes().count(b"\n") >= ORDERS * EACH, "all leave")
    assert service.stop() == 0
    found = [decode_line(each) for each in out.read_bytes().splitlines()]
    left = [each for each in found if isinstance(each, Line)]
    assert len(left) == len(found) == ORDERS * EACH
    wanted = {own(make(order, number)): (order, number) for order in range(ORDERS) for number in range(1, EACH + 1)}
    by_order = defaultdict(list)
    for each in left:
        order, number = wanted[own(each)]
        by_order[order].append(number)
    assert set(map(tuple, by_order.values())) == {tuple(range(1, EACH + 1))}
    assert (service.out_directory / "dead-letters.jsonl").read_bytes() == b""


def test_what_is_lost_is_named_in_the_header_of_what_does_not_wait_any_more(new_service: Callable[..., OperatedService]) -> None:
    make, settings = FORMATS["cloudevents"]
    service = new_service(*SHOP, *settings, f"{RESEQUENCER} {{ strategy = SEQUENCE, stash-timeout = 1s }}")
    service.in_directory.mkdir(parents=True)
    events = [replace(make(1, number), key=b"%d" % number) for number in (1, 3)]
    (service.in_directory / "partition-0.jsonl").write_bytes(b"".join(map(encode_line, events)))
    service.start()
    out = service.out_directory / "notifications.jsonl"
    wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") == 2, "both leave")
    service.wait_for_report(lambda report: report.counts.get("several_keys") == 1, "counted the unit with two keys")
    assert "note: there are units whose records have different keys" in service.verb("status").stdout
    assert service.stop() == 0
    marks = [dict(decode_line(each).headers) for each in out.read_bytes().splitlines()]  # type: ignore[union-attr]
    assert [each.get("resequencer-incomplete") for each in marks] == [None, b"sequence:2"]


@pytest.mark.parametrize(
    ("settings", "key", "remedy"),
    [
        (("events.format=cloudevents",), f"{NOTIFICATION}.handler", "only events.format = ipf"),
        (("events.format=mapped",), f"{INGRESS}.events.mapped.id", "position (no record is a duplicate)"),
        (("events.mapped.unit=value",), f"{INGRESS}.events.mapped.unit", "key, header:NAME, key:PATH or value:PATH"),
        (("events.format=avro",), f"{INGRESS}.events.format", "ipf, cloudevents, mapped"),
    ],
)
def test_what_cannot_be_is_refused_by_check_with_its_key(
    new_service: Callable[..., OperatedService], settings: tuple[str, ...], key: str, remedy: str
) -> None:
    service = new_service(*(f"{INGRESS}.{each}" for each in settings))
    checked = service.verb("check")
    assert checked.returncode != 0
    assert key in checked.stderr
    assert remedy in checked.stderr


def test_another_format_is_refused_until_an_operator_accepts_it_and_what_waited_leaves_in_order(
    new_service: Callable[..., OperatedService],
) -> None:
    make, settings = FORMATS["cloudevents"]
    service = new_service(*SHOP, f"{RESEQUENCER}.strategy=SEQUENCE")
    service.in_directory.mkdir(parents=True)
    source, out = service.in_directory / "partition-0.jsonl", service.out_directory / "notifications.jsonl"
    source.write_bytes(b"".join(encode_line(make(1, number)) for number in (1, 3, 4)))
    service.start(*settings)
    wait_until(lambda: out.exists() and out.read_bytes().count(b"\n") == 1, "the first leaves")
    assert service.stop() == 0
    mapping = 'unit = "header:ce_subject", sequence = "header:ce_sequence", id = "header:ce_id"'
    other = f"{INGRESS}.events {{ format = mapped, mapped {{ {mapping} }} }}"
    service.start(other)
    assert service.wait() == ExitCode.CONFIGURATION_REFUSED
    refusal = service.log_file.read_text()
    assert f"{INGRESS}.events.format: events are read as mapped-" in refusal
    assert "what is stored was read as cloudevents: an event that comes again would not be recognised" in refusal
    with source.open("ab") as appended:
        appended.write(encode_line(make(1, 2)))
    service.start(other, f"{INGRESS}.events.replaces=cloudevents", f"{RESEQUENCER}.stash-timeout=1s")
    wait_until(lambda: out.read_bytes().count(b"\n") == 4, "all leave")
    assert service.stop() == 0
    lines = [decode_line(each) for each in out.read_bytes().splitlines()]
    found = [(json.loads(each.value)["number"], dict(each.headers)) for each in lines]  # type: ignore[union-attr]
    assert [number for number, _ in found] == [1, 2, 3, 4]
    assert ["resequencer-possible-duplicate" in headers for _, headers in found] == [False, True, True, True]
