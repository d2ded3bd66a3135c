"""Events of one's own: a format, a data handler and a handler, as their recipes say, through a real service that is killed."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.recipes import ROOT, Recipe
from harness.waiting import wait_until

from notification_service.connectors.line_format import Line, decode_line, encode_line
from resequencer.notification import notification_id

pytestmark = pytest.mark.slow
NewService = Callable[..., OperatedService]
CONF = "conf/shop.conf"
EVENTS = ("opened;0", "line;1250", "line;750", "line;5", "paid;0")
ORDERS = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the recipes were followed."""
    for name in ("a format", "a data handler"):
        Recipe(name).write(tmp_path)
    shutil.copy(ROOT / "conf" / "application.conf", tmp_path / "conf")
    return tmp_path


def event(order: int, number: int) -> bytes:
    return encode_line(Line(f"order-{order};{number};{EVENTS[number - 1]}".encode(), b"k", (("trace", b"1"),)))


def shuffled(orders: range) -> bytes:
    """Return all events of these orders, some of them twice, each order's out of order."""
    chance = random.Random(f"shop {orders}")
    lines = [
        event(order, number) for order in orders for number in range(1, len(EVENTS) + 1) for _ in range(chance.choice((1, 1, 2)))
    ]
    chance.shuffle(lines)
    return b"".join(lines)


def lines(file: Path) -> list[Line]:
    read = [decode_line(each) for each in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []
    assert all(isinstance(each, Line) for each in read)
    return [each for each in read if isinstance(each, Line)]


def test_what_the_handler_makes_of_a_unit_leaves_once_though_the_worker_is_killed(
    directory: Path, new_service: NewService
) -> None:
    service = new_service(directory, config=CONF)
    service.in_directory.mkdir(parents=True)
    source, out = service.in_directory / "partition-0.jsonl", service.out_directory / "notifications.jsonl"
    source.write_bytes(encode_line(Line(b"order-1;1", b"k", ())) + shuffled(range(ORDERS // 2)))
    service.start()
    wait_until(lambda: lines(out), "something leaves", look_seconds=0)
    with source.open("ab") as appended:
        appended.write(shuffled(range(ORDERS // 2, ORDERS)))
    service.kill()
    service.start_and_wait()
    wait_until(lambda: len(lines(out)) >= ORDERS, "all leave")
    assert service.stop() == 0
    sent = lines(out)
    assert sorted(dict(each.headers)["order"] for each in sent) == sorted(f"order-{order}".encode() for order in range(ORDERS))
    for each in sent:
        order, *ours = each.headers
        unit = order[1].decode()
        assert (each.key, each.value) == (b"receipts", b"20.05")
        assert [name for name, _ in ours] == ["notification-id", "envelope-id", "source-position", "unit-of-work"]
        assert ours[0][1].decode() == notification_id(unit, "events#5", 0)
        assert (ours[1][1], ours[3][1]) == (b"events#5", unit.encode())
    (dead_letter,) = lines(service.out_directory / "dead-letters.jsonl")
    headers = dict(dead_letter.headers)
    assert headers["dead-letter-reason"] == b"undecodable"
    assert headers["dead-letter-error"].startswith(b"format shop.order_lines:OrderLines raised ValueError: not enough values")


def test_a_unit_is_shown_and_a_data_handler_that_cannot_read_its_data_is_refused(
    directory: Path, new_service: NewService
) -> None:
    (directory / "shop" / "lists.py").write_text(
        "import json\n\nfrom shop.totals import Total\n\n\nclass Lines(Total):\n    empty = ()\n\n"
        "    def decode(self, stored):\n        return tuple(json.loads(stored)['cents'])\n"
    )
    service = new_service(directory, config=CONF)
    service.in_directory.mkdir(parents=True)
    source = service.in_directory / "partition-0.jsonl"
    source.write_bytes(event(1, 1) + event(1, 2) + event(1, 4))
    service.start_and_wait()
    service.wait_for_report(lambda report: report.counts.get("stashed", 0) == 1, "the third waits")
    assert service.stop() == 0
    shown = service.verb("units", "show", "order-1")
    assert shown.returncode == 0, shown.stderr
    assert "sequence:3" in shown.stdout
    other = f'{NOTIFICATION}.data-handler="shop.lists:Lines"'
    service.start(other)
    said = "of another data handler (data handler shop.lists:Lines raised TypeError"
    wait_until(lambda: said in service.log_file.read_text(), "the unit is refused")
    service.kill()
    with source.open("ab") as appended:
        appended.write(event(1, 3) + event(1, 5))
    service.start_and_wait()
    wait_until(lambda: lines(service.out_directory / "notifications.jsonl"), "it goes on with what stored its data")
    assert service.stop() == 0
    assert [each.value for each in lines(service.out_directory / "notifications.jsonl")] == [b"20.05"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (f"{INGRESS}.events.format", "shop.gone:Format", "cannot be imported (ModuleNotFoundError: No module named 'shop.gone')"),
        (f"{INGRESS}.events.format", "shop.totals:Receipts", "cannot be used: TypeError: it has no method decode"),
        (
            f"{NOTIFICATION}.data-handler",
            "shop.gone:Data",
            "cannot be imported (ModuleNotFoundError: No module named 'shop.gone')",
        ),
        (f"{NOTIFICATION}.data-handler", "builtins:object", "cannot be used: TypeError: it has no absorb, fill, encode, decode"),
        (f"{NOTIFICATION}.data-handler", "latest-objects", "payments, which only events.format = ipf brings"),
        (f"{NOTIFICATION}.handler", "builtins:id", "cannot be used: TypeError: it has no method handle"),
    ],
)
def test_what_cannot_be_used_is_refused_with_key_and_value(
    directory: Path, new_service: NewService, key: str, value: str, said: str
) -> None:
    checked = new_service(directory, f"{key}={json.dumps(value)}", config=CONF).verb("check")
    assert checked.returncode == 3
    assert f"{key}: " in checked.stderr
    assert value in checked.stderr
    assert said in checked.stderr


@pytest.mark.parametrize(("name", "said"), [("none", "reports what was kept"), ("shop.totals:Total", "reports PaymentData")])
def test_the_handler_of_payments_needs_payment_data(directory: Path, new_service: NewService, name: str, said: str) -> None:
    checked = new_service(directory, f'{NOTIFICATION}.data-handler="{name}"').verb("check")
    assert checked.returncode == 3
    assert checked.stderr.startswith(f"resequencer: {NOTIFICATION}.data-handler: ")
    assert said in checked.stderr
