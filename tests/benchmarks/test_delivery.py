"""The figures of delivery are of work that was done: what is left out is noticed."""

from pathlib import Path

import pytest

from benchmarks import delivery
from benchmarks._runner import WrongResult
from benchmarks.delivery import Client, Database, claims, intake, loop, measure, new_run, worker, write_notifications
from notification_service.delivery.settings import Step
from notification_service.simulator.receiver.check import read_notifications

pytestmark = pytest.mark.slow  # Processes of their own, and synced commits.


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database("SQLite", tmp_path)


@pytest.mark.parametrize("client", [loop, worker])
def test_loop_and_worker_deliver_everything(database: Database, client: Client) -> None:
    file = database.directory / "notifications.jsonl"
    # So many that the CPU of each process is seen: the system counts it in hundredths of a second.
    found = measure(client, database, file, write_notifications(file, 400))
    assert min(found["per s"], found["CPU us"], found["receiver us"]) > 0


@pytest.mark.parametrize("client", [loop, worker])
def test_a_notification_that_was_not_delivered_is_noticed(database: Database, client: Client) -> None:
    file = database.directory / "notifications.jsonl"
    pairs = [*write_notifications(file, 8), ("unit-00000000", "one that is missing in the file")]
    with pytest.raises(WrongResult, match=r"lost +1 "):
        measure(client, database, file, pairs)


def test_a_worker_that_overtakes_is_noticed(database: Database) -> None:
    file = database.directory / "notifications.jsonl"
    pairs = write_notifications(file, 8)
    with pytest.raises(WrongResult, match=r"out of order +7 "):
        measure(worker, database, file, pairs[::-1])


def test_claims_beside_ended_rows(database: Database) -> None:
    run = new_run(database)
    assert all(min(claims(run, size, filled, 3).values()) > 0 for filled, size in [(0, 10), (10, 300)])


def test_a_claim_that_finds_too_few_rows_is_noticed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_claim", lambda ledger, _: ledger.claim("r", Step.DELIVER, "w", 1).claims)
    with pytest.raises(WrongResult, match="processed=3"):
        claims(new_run(database), 10, 0, 3)


def test_intake(database: Database) -> None:
    file = database.directory / "intake.jsonl"
    write_notifications(file, 2_500)
    assert min(intake(database, file, 2_500).values()) > 0


def test_a_notification_that_is_not_taken_in_is_noticed(database: Database) -> None:
    file = database.directory / "intake.jsonl"
    write_notifications(file, 9)
    with pytest.raises(WrongResult, match="expected=9,"):
        intake(database, file, 10)


def test_the_notifications_are_what_the_tables_say(tmp_path: Path) -> None:
    file = tmp_path / "notifications.jsonl"
    pairs = write_notifications(file, 80)
    assert list(read_notifications([file])) == pairs
    assert {unit: sum(each == unit for each, _ in pairs) for unit, _ in pairs} == {f"unit-{each:08}": 8 for each in range(10)}
    assert file.stat().st_size / 80 == pytest.approx(1_550, rel=0.05)
