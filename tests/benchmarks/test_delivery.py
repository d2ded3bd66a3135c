"""The figures of delivery are of work that was done: what is left out is noticed."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks._delivery import calls, rows
from benchmarks._delivery.calls import LOOP, Client, loop, measure, worker
from benchmarks._delivery.stage import Database, WrongResult, write_notifications
from benchmarks.delivery import show_costs
from notification_service.delivery.settings import Step
from notification_service.simulator.receiver.check import read_notifications

pytestmark = pytest.mark.slow  # Processes of their own, and synced commits.


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database("SQLite", tmp_path)


def test_loop_and_worker_deliver_everything(database: Database) -> None:
    measured = calls.deliveries(database, 400, 4, 1)
    assert list(measured) == [LOOP, "SQLite"]
    # So many that the CPU of each process is seen: the system counts it in hundredths of a second.
    assert all(each.wall > 0 and each.client > 0 and each.receiver > 0 for each in measured.values())


@pytest.mark.parametrize("client", [loop, worker])
def test_a_notification_that_was_not_delivered_is_noticed(database: Database, client: Client) -> None:
    file = database.directory / "notifications.jsonl"
    pairs = [*write_notifications(file, 8), ("unit-00000000", "one that is missing in the file")]
    with pytest.raises(WrongResult, match=r"lost +1 "):
        measure(client, database, file, pairs, 2)


def test_a_worker_that_overtakes_is_noticed(database: Database) -> None:
    file = database.directory / "notifications.jsonl"
    pairs = write_notifications(file, 8)
    with pytest.raises(WrongResult, match=r"out of order +7 "):
        measure(worker, database, file, pairs[::-1], 2)


def test_claims_beside_ended_rows(database: Database) -> None:
    assert [size for size, costs in rows.claims(database, [10, 300], 3) if min(costs) > 0] == [10, 300]


def test_a_claim_that_finds_too_few_rows_is_noticed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_claim", lambda ledger, _: ledger.claim("r", Step.DELIVER, "w", 1).claims)
    with pytest.raises(WrongResult, match="processed=3"):
        list(rows.claims(database, [10], 3))


def test_ticks_beside_waiting_rows(database: Database) -> None:
    assert [size for size, costs in rows.ticks(database, [10, 300], 3) if min(costs) > 0] == [10, 300]


def test_a_gate_that_is_not_shut_is_noticed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_shut", lambda *_: None)
    with pytest.raises(WrongResult, match="although the gate is shut"):
        list(rows.ticks(database, [10], 3))


def test_intake(database: Database) -> None:
    found = rows.intake(database, 2_500, 1)
    assert min(found.whole, found.reading) > 0


def test_a_notification_that_is_not_taken_in_is_noticed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_less(file: Path, number: int) -> Any:
        return write_notifications(file, number - 1)

    monkeypatch.setattr(rows, "write_notifications", write_less)
    with pytest.raises(WrongResult, match="expected=9,"):
        rows.intake(database, 10, 1)


def test_the_notifications_are_what_the_tables_say(tmp_path: Path) -> None:
    file = tmp_path / "notifications.jsonl"
    pairs = write_notifications(file, 80)
    assert list(read_notifications([file])) == pairs
    assert {unit: sum(each == unit for each, _ in pairs) for unit, _ in pairs} == {f"unit-{each:08}": 8 for each in range(10)}
    assert file.stat().st_size / 80 == pytest.approx(1_550, rel=0.05)


def test_a_ratio_is_to_the_fewest_rows(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = zip(count(1), [rows.Costs(2, 10), rows.Costs(3, 40)], strict=False)
    show_costs("a title", ("one", "other"), iter(sizes))
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["1", "2.00", "1.00", "10.00", "1.00", "<", "1.5"],
        ["2", "3.00", "1.50", "40.00", "4.00", "<", "1.5"],
    ]
