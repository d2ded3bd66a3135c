"""Events of one's own: a format, a data handler and a handler, as their recipes say, through a real service that is killed."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.recipes import ROOT, Recipe
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.connectors.line_format import Line, decode_line, encode_line
from resequencer.notification import notification_id

pytestmark = pytest.mark.slow
NewService = Callable[..., OperatedService]
CONF = "conf/receipts.conf"
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
    refused = encode_line(Line(b"order-1;1", b"k", ())) + encode_line(Line(None, b"k", ()))
    source.write_bytes(refused + shuffled(range(ORDERS // 2)))
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
    short, empty = (dict(each.headers) for each in lines(service.out_directory / "dead-letters.jsonl"))
    assert short["dead-letter-reason"] == empty["dead-letter-reason"] == b"undecodable"
    assert short["dead-letter-error"].startswith(b"format shop.order_lines:OrderLines raised ValueError: not enough values")
    assert empty["dead-letter-error"] == b"it has no value; send order;number;what;cents"


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
    problem = "of another data handler (data handler shop.lists:Lines raised TypeError"
    wait_until(lambda: problem in service.log_file.read_text(), "the unit is refused")
    service.kill()
    with source.open("ab") as appended:
        appended.write(event(1, 3) + event(1, 5))
    service.start_and_wait()
    wait_until(lambda: lines(service.out_directory / "notifications.jsonl"), "it goes on with what stored its data")
    assert service.stop() == 0
    assert [each.value for each in lines(service.out_directory / "notifications.jsonl")] == [b"20.05"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
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
    directory: Path, new_service: NewService, key: str, value: str, expected: str
) -> None:
    checked = new_service(directory, f"{key}={json.dumps(value)}", config=CONF).verb("check")
    assert checked.returncode == 3
    assert f"{key}: " in checked.stderr
    assert value in checked.stderr
    assert expected in checked.stderr


@pytest.mark.parametrize(("name", "expected"), [("none", "reports what was kept"), ("shop.totals:Total", "reports PaymentData")])
def test_the_handler_of_payments_needs_payment_data(directory: Path, new_service: NewService, name: str, expected: str) -> None:
    checked = new_service(directory, f'{NOTIFICATION}.data-handler="{name}"').verb("check")
    assert checked.returncode == 3
    assert checked.stderr.startswith(f"resequencer: {NOTIFICATION}.data-handler: ")
    assert expected in checked.stderr


def test_a_store_of_ones_own_counts_beside_events_of_other_formats(directory: Path, new_service: NewService) -> None:
    Recipe("a store of your own").write(directory)
    stores = f'{NOTIFICATION}.aggregation {{ enabled = true, stores.jobs.apply = "payments.import_jobs:apply" }}'
    on_value = f'{NOTIFICATION}.aggregation.stores.jobs.on-value="payments.import_jobs:on_value"'
    service = new_service(directory, stores, on_value, config=CONF)
    service.in_directory.mkdir(parents=True)
    (service.in_directory / "partition-0.jsonl").write_bytes(b"".join(event(1, number) for number in range(1, 6)))
    service.start()
    out, jobs = service.out_directory / "notifications.jsonl", service.run_directory / "groups" / "jobs"
    wait_until(lambda: lines(out), "the receipt")
    worker = service.begin_verb("groups", "run")
    give = "import sys; sys.path.insert(0, '.'); from payments.importer import *\n"
    give += f"with open_atomic_store(Path({CONF!r}), 'jobs', {service.arguments[3:]!r}) as store:\n"
    give += "    for job in (1, 2, 2): store.update('request-7', f'job-{job}', {'jobs': 2, 'contacts': 100})\n"
    subprocess.run([sys.executable, "-c", give], check=True, cwd=directory, timeout=DEADLINE_SECONDS)
    (completion,) = wait_until(lambda: lines(jobs / "completions.jsonl"), "the completion")
    assert (completion.key, json.loads(completion.value)) == (b"request-7", {"request": "request-7", "contacts": 200})
    worker.terminate()
    assert worker.wait(DEADLINE_SECONDS) == 0
    assert service.stop() == 0
    assert not (service.run_directory / "facts").exists()
    assert not (service.run_directory / "groups" / "payments").exists()
    listed = service.verb("groups", "list")
    assert listed.returncode == 3
    assert "only payments of IPF's envelopes have groups" in listed.stderr


def test_without_a_store_of_ones_own_there_is_nothing_to_count(directory: Path, new_service: NewService) -> None:
    checked = new_service(directory, f"{NOTIFICATION}.aggregation.enabled=true", config=CONF).verb("check")
    assert checked.returncode == 3
    assert checked.stderr.startswith(f"resequencer: {NOTIFICATION}.aggregation.enabled: is true, but payments to count come only")


def test_verify_says_that_it_cannot_judge_a_data_handler_of_ones_own(directory: Path, new_service: NewService) -> None:
    (directory / "shop" / "first.py").write_text(
        "from notification_service.api import PaymentData\nfrom shop.totals import Total\n\n\n"
        "class First(Total):\n    empty = PaymentData()\n"
    )
    service = new_service(directory, f'{NOTIFICATION}.data-handler="shop.first:First"')
    assert service.verb("check").returncode == 0
    verified = service.verb("verify")
    assert verified.returncode == 3
    assert f"{NOTIFICATION}.data-handler: 'shop.first:First' is your own" in verified.stderr


def test_a_record_that_ends_its_worker_while_it_is_read_is_a_dead_letter_after_three_exits(
    directory: Path, new_service: NewService
) -> None:
    (directory / "shop" / "deadly.py").write_text(
        "import os\n\nfrom shop.order_lines import OrderLines\n\n\nclass Deadly(OrderLines):\n    def decode(self, record):\n"
        "        return os._exit(3) if record.value == b'deadly' else super().decode(record)\n"
    )
    pause = f"{NOTIFICATION}.worker.restart-pause=1ms"
    service = new_service(directory, f'{INGRESS}.events.format="shop.deadly:Deadly"', pause, config=CONF)
    service.in_directory.mkdir(parents=True)
    events = [event(1, number) for number in range(1, 6)]
    deadly = encode_line(Line(b"deadly", b"k", ()))
    (service.in_directory / "partition-0.jsonl").write_bytes(b"".join([*events[:3], deadly, *events[3:]]))
    service.start(alone=False)
    wait_until(lambda: lines(service.out_directory / "notifications.jsonl"), "the receipt")
    wait_until(lambda: not list((service.run_directory / "suspects").glob("*")), "what is known of it is forgotten")
    assert service.stop() == 0
    (dead_letter,) = lines(service.out_directory / "dead-letters.jsonl")
    headers = dict(dead_letter.headers)
    assert (dead_letter.value, headers["dead-letter-reason"]) == (b"deadly", b"ended-its-worker")
    assert headers["dead-letter-error"].startswith(b"reading it ended 3 workers, the last of which ended with 3 at ")
