"""`resequencer find` as an operator types it, on a storage and files that a service left. No service runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.driving import PARTITION, Driven, Envelopes
from harness.processes.operated_service import envelope_line
from harness.stored_units import StoredUnits

from notification_service.command_line import main
from notification_service.payments.strategies import StrategySettings, make_strategy

Find = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredUnits]:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run" / "application"
    (run / "in").mkdir(parents=True)
    (run / "out").mkdir()
    (run / "in" / "partition-0.jsonl").write_bytes(envelope_line("uow-0", 1) + b"\n" + envelope_line("uow-7", 1) + b"\n")
    made = StoredUnits(run)
    yield made
    made.close()


@pytest.fixture
def find(stored: StoredUnits, capsys: pytest.CaptureFixture[str]) -> Find:
    file = f"payment-status-notification.storage.embedded.file={stored.file}"

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["find", *arguments, "--set", file])
        return code, *capsys.readouterr()

    return run


def test_what_waits_is_found_with_the_command_that_shows_it(stored: StoredUnits, find: Find) -> None:
    driven = Driven(make_strategy(StrategySettings("SEQUENCE")))
    driven.arrive(Envelopes()(2))
    stored.keep(driven)
    code, printed, errors = find("uow-1")
    assert (code, errors) == (0, "")
    first, *searched = printed.splitlines()
    assert first.startswith("unit uow-1: waits for sequence:1 since ")
    assert first.endswith("; resequencer units show uow-1")
    assert f"searched for unit of work: the storage, {PARTITION}" in searched


def test_a_position_leads_to_the_unit_of_its_record(find: Find) -> None:
    offset = len(envelope_line("uow-0", 1)) + 1
    code, printed, _ = find(f"{PARTITION}@{offset}", "--json")
    (found,) = json.loads(printed)["found"]
    assert (code, found["kind"], found["command"]) == (0, "record", "resequencer units show uow-7")
    code, printed, _ = find(f"{PARTITION}@{offset + 5}")
    assert code == 1
    assert (
        f"searched for record (position): no record at {PARTITION}@{offset + 5}: it was deleted, or is not there yet" in printed
    )


def test_what_is_not_found_is_said_with_what_was_searched_and_the_look_for_a_payment_is_noted(find: Find, tmp_path: Path) -> None:
    code, printed, errors = find("INVOICE-4711")
    assert code == 1
    assert errors == "resequencer: nothing was found of INVOICE-4711 with the configuration conf/application.conf\n"
    assert "can mean: " in printed
    assert "searched for group (message id): not searched: the payments of messages are not counted" in printed
    (log,) = (tmp_path / "run" / "application").glob("console-audit-*.jsonl")
    noted = json.loads(log.read_text())
    assert (noted["action"], noted["from"], noted["text"]) == ("find.end-to-end-id", "shell", "INVOICE-4711")
