"""Behind a service whose records leave as they came, orders, delivery, dead letters and the story of a unit work as ever."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService
from harness.scripted_receiver import OK, Reply, ScriptedReceiver, scripted_receiver
from harness.waiting import wait_until

from guardian.headers import own_texts
from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_text

pytestmark = pytest.mark.slow

PASSES = (
    f"{NOTIFICATION}.handler=pass-through",
    f"{NOTIFICATION}.aggregation.enabled=false",
    f"{RESEQUENCER}.storage-type=embedded",
)
MAPPED = f'{INGRESS}.events {{ format = mapped, mapped {{ unit = "header:order", sequence = "header:version" }} }}'
SEQUENCE = f"{RESEQUENCER} {{ strategy = SEQUENCE, stash-timeout = 1h }}"
WINDOW = f"{RESEQUENCER} {{ strategy = WINDOW, order-by = sequence, reorder-window = 1h }}"
TOPIC = "IPF_PROCESSING_DATA"


def change(order: str, number: int) -> Line:
    """Return a record whose key is no text and not its unit, whose value is no text, and which was a notification before."""
    headers = (("order", order.encode()), ("version", str(number).encode()), ("content-type", b"application/x-protobuf"))
    upstream = (("notification-id", b"N1"), ("resequencer-notification-id", b"N2"), ("resequencer-late", b"true"))
    return Line(f"{order} {number}".encode() + b"\x00\xff", bytes([255, number]), (*headers, *upstream))


def put(service: OperatedService, *lines: Line) -> list[int]:
    """Append the lines; return where each begins."""
    service.in_directory.mkdir(parents=True, exist_ok=True)
    file = service.in_directory / "partition-0.jsonl"
    at = [file.stat().st_size if file.exists() else 0]
    for each in map(encode_line, lines):
        at.append(at[-1] + len(each))
    with file.open("ab") as appended:
        appended.write(b"".join(map(encode_line, lines)))
    return at[:-1]


def published(service: OperatedService, name: str = "notifications") -> list[Line]:
    file = service.out_directory / f"{name}.jsonl"
    found = [decode_line(each) for each in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []
    return [each for each in found if isinstance(each, Line)]


def as_it_came(line: Line) -> tuple[Any, ...]:
    """Return the record without what is behind its own headers: two of these have been renamed."""
    headers = [(name.replace("resequencer-original-", "resequencer-"), value) for name, value in line.headers[:6]]
    return line.key, tuple(headers), line.value


@pytest.mark.parametrize("strategy", [SEQUENCE, WINDOW])
def test_each_order_to_a_unit_has_its_outcome(new_service: Callable[..., OperatedService], strategy: str) -> None:
    service = new_service(*PASSES, MAPPED, strategy, f"{NOTIFICATION}.orders.enabled=true")
    units = {each: change(each, 2) for each in ("release", "skip", "hold", "resume", "extend", "retry", "dead-letter")}
    offsets = dict(zip(units, put(service, *units.values()), strict=True))
    service.start_and_wait()

    def waiting() -> dict[str, Any]:
        listed = service.verb("units", "list", "--json", "--limit", "100")
        return {each["unit"]: each for each in map(json.loads, listed.stdout.splitlines())}

    wait_until(lambda: waiting().keys() == units.keys(), "all wait")
    assert {each["waits_for"] for each in waiting().values()} == {"sequence:1" if strategy == SEQUENCE else "window"}

    def order(kind: str, *more: str) -> str:
        unit = "hold" if kind == "resume" else kind
        given = service.verb("units", kind, unit, *more, "--because", "a test")
        return given.stdout.partition(":")[0].strip() or given.stderr

    assert order("hold", "--for", "1h").startswith("held;")
    outcomes = {kind: order(kind) for kind in ("release", "skip", "resume", "retry")}
    outcomes["extend"] = order("extend", "--until", instant_text(SystemClock().now() + 7_200_000))
    outcomes["dead-letter"] = order("dead-letter", str(offsets["dead-letter"]))
    is_by_window = strategy == WINDOW
    assert outcomes == {
        "release": "done", "skip": "refused-impossible" if is_by_window else "done", "resume": "done",
        "retry": "refused-impossible", "extend": "done", "dead-letter": "done",
    }  # fmt: skip
    left = {own_texts(each.headers)["unit-of-work"]: each for each in published(service)}
    assert left.keys() == ({"release"} if is_by_window else {"release", "skip"})
    marks = own_texts(left["release"].headers)
    assert (marks["incomplete"], marks["released-by"]) == ("window" if is_by_window else "sequence:1", "operator")
    assert "late" not in marks, "the mark of a service before this one is none of ours"
    assert all(as_it_came(each) == as_it_came(units[unit]) for unit, each in left.items())
    (dead,) = published(service, "dead-letters")
    assert dict(dead.headers)["dead-letter-reason"] == b"ordered"
    assert (dead.key, dead.value) == (units["dead-letter"].key, units["dead-letter"].value)
    assert waiting().keys() == units.keys() - left.keys() - {"dead-letter"}
    shown = json.loads(service.verb("units", "show", "release", "--json").stdout)
    assert [each["position"] for each in shown["left"]["found"]] == [f"{TOPIC}-0@{offsets['release']}"]
    shown = json.loads(service.verb("units", "show", "dead-letter", "--json").stdout)
    assert [each["reason"] for each in shown["dead_letters"]["found"]] == ["ordered"], "by its unit, which is not its key"
    shown = json.loads(service.verb("units", "show", "hold", "--json").stdout)
    assert [(each["defect"], each["sequence"]) for each in shown["state"]["stash"]] == [(None, 2)]
    assert (shown["state"]["payment_data"], shown["state"]["stash"][0]["events"]) == ([], [])
    assert service.stop() == 0


@pytest.fixture
def receiving() -> Iterator[ScriptedReceiver]:
    """A receiver that takes each third call only at its second attempt."""
    with scripted_receiver() as made:
        made.answers = lambda _key, id_, nth: Reply(503) if nth == 1 and int(id_[0], 36) % 3 == 0 else OK
        yield made


def test_what_passed_through_is_delivered_once_and_in_order_per_unit_byte_for_byte(
    new_service: Callable[..., OperatedService], receiving: ScriptedReceiver
) -> None:
    receivers = f'{NOTIFICATION}.delivery {{ receivers.r {{ url = "{receiving.url}" }}, worker.poll = 50ms }}'
    service = new_service(*PASSES, MAPPED, SEQUENCE, receivers)
    orders = [f"order-{number}" for number in range(12)]
    put(service, *(change(order, number) for number in (2, 1, 4, 3) for order in orders))
    service.start(alone=False)
    wait_until(lambda: len(set(receiving.taken)) == 48, "all is delivered")
    assert service.stop() == 0
    expected = defaultdict(list)
    for each in published(service):
        texts = own_texts(each.headers)
        expected[texts["unit-of-work"]].append((texts["notification-id"], each.value))
    assert expected.keys() == set(orders)
    for order, sent in expected.items():
        assert [value for _, value in sent] == [change(order, number).value for number in (1, 2, 3, 4)]
        assert receiving.ids(order) == [id_ for id_, _ in sent]
        assert [receiving.bodies[id_] for id_, _ in sent] == [("application/x-protobuf", value) for _, value in sent]
    assert len(receiving.taken) == 48, "each once"
