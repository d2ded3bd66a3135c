"""`resequencer units` as an operator types it, on a storage and files that a service left. No service runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.driving import PARTITION, Driven, Envelopes
from harness.stored_units import StoredUnits

from notification_service.command_line import main
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.supervision.locks import RunLock
from resequencer.clock import instant_of
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits

NOTIFICATION = "payment-status-notification"
OTHER = Partition(PARTITION.topic, 1)
AT = instant_of("2026-03-28T23:33Z")

Units = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredUnits]:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run" / "application"
    (run / "in").mkdir(parents=True)
    for number in (0, 1):
        (run / "in" / f"partition-{number}.jsonl").write_bytes(b"")
    made = StoredUnits(run)
    yield made
    made.close()


@pytest.fixture
def units(stored: StoredUnits, capsys: pytest.CaptureFixture[str]) -> Units:
    file = f"{NOTIFICATION}.storage.embedded.file={stored.file}"

    def run(*arguments: str, overrides: tuple[str, ...] = ()) -> tuple[int, str, str]:
        code = main(["units", *arguments, "--set", file, *overrides])
        return code, *capsys.readouterr()

    return run


def waits(since: int, waits_for: str = "sequence:1", kind: WaitKind = WaitKind.DEADLINE) -> Waits:
    return Waits(AT + since + 21_000, kind, AT + since, waits_for, "SEQUENCE", 2, 100)


def ids(printed: str) -> list[str]:
    return [line.split("  ")[1] for line in printed.splitlines()]


def test_list_prints_the_longest_wait_first_of_all_partitions(stored: StoredUnits, units: Units) -> None:
    stored.put("young", b"", waits(5_000))
    stored.put("old", b"", waits(0, "sequence:4"), partition=OTHER)
    stored.put("idle", b"", None)
    code, printed, errors = units("list")
    assert code == 0
    assert ids(printed) == ["old", "young"]
    line = printed.splitlines()[0]
    assert line.startswith("2026-03-28T23:33:00.000Z  old  for sequence:4  (2 stashed, waiting ")
    assert ", deadline at 2026-03-28T23:33:21.000Z, " in line
    assert line.endswith(" ago)  IPF_PROCESSING_DATA-1")
    count = "resequencer: 2 waiting units in the storage of conf/application.conf\n"
    assert errors.startswith(f"{count}resequencer: The service does not run here: ")


@pytest.mark.slow
def test_list_takes_a_limit_and_filters_and_counts_what_it_left_out(stored: StoredUnits, units: Units) -> None:
    for number in range(5):
        stored.put(f"uow-{number}", b"", waits(number, f"sequence:{number}"))
    stored.put("else", b"", waits(0, "bank", WaitKind.DEPENDENCY), partition=OTHER)
    code, printed, errors = units("list", "uow-", "--limit", "2")
    assert (code, ids(printed)) == (0, ["uow-0", "uow-1"])
    assert "5 of 6 waiting units match, in the storage of conf/application.conf, the 2 oldest are shown" in errors
    assert "0 of 6 waiting units match" in units("list", "nothing")[2]
    assert ids(units("list", "--for", "ban")[1]) == ["else"]
    assert ids(units("list", "--partition", str(OTHER))[1]) == ["else"]
    assert len(ids(units("list", "--older-than", "1h")[1])) == 6
    assert units("list", "--older-than", "3650d")[1] == ""


def test_a_unit_whose_handler_is_called_is_listed_and_shown_since_then(stored: StoredUnits, units: Units) -> None:
    driven = Driven(make_strategy(StrategySettings("SEQUENCE")), waits=True)
    driven.arrive(Envelopes()(1))
    stored.keep(driven)
    stored.put("other", b"", waits(0))
    line, errors = units("list", "--kind", "call")[1:]
    assert ids(line) == ["uow-1"]
    assert "1 of 2 waiting units match" in errors
    assert "  for its handler, attempt 1 of 3  (1 stashed, waiting " in line
    assert ", call since 1970-01-01T00:16:40.000Z, " in line
    shown = units("show", "uow-1")[1]
    assert (
        "next: The service does not run here: it waits until it is started; the call of its handler was due at 1970-01-01T"
        in shown
    )
    assert "attempts: 0 failed at IPF_PROCESSING_DATA-0@1, its handler has been called since 1970-01-01T00:16:40.000Z" in shown


def test_list_as_json_is_an_object_for_each_line(stored: StoredUnits, units: Units) -> None:
    stored.put("uow-1", b"", waits(0))
    row: dict[str, Any] = json.loads(units("list", "--json")[1])
    assert (row["unit"], row["waits_for"], row["kind"], row["stashed"]) == ("uow-1", "sequence:1", "deadline", 2)
    assert "does not run here" in row["hindrance"]


def test_a_service_that_has_not_reported_yet_is_starting(stored: StoredUnits, units: Units, tmp_path: Path) -> None:
    stored.put("uow-1", b"", waits(0))
    lock = RunLock(tmp_path / "run" / "application")
    lock.acquire()
    try:
        errors, shown = units("list")[2], units("show", "uow-1")[1]
    finally:
        lock.release()
    assert "The service is starting: what waits here waits until" in errors
    assert "next: The service is starting: it waits until a worker has taken its partition over" in shown
    assert "does not run" not in errors + shown


@pytest.mark.parametrize("wrong", [("--older-than", "10"), ("--partition", "nothing"), ("--limit", "x"), ("--kind", "x")])
def test_a_wrong_option_is_wrong_usage(units: Units, wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        units("list", *wrong)
    assert ended.value.code == 2


def test_a_dead_letter_is_ordered_by_the_offset_alone(units: Units, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        units("dead-letter", "uow-1", "ORDERS-0@17", "--because", "test")
    assert ended.value.code == 2
    assert "OFFSET: expected the offset alone, such as 17 of ORDERS-0@17, not 'ORDERS-0@17'" in capsys.readouterr().err


def test_ids_cannot_control_the_terminal(stored: StoredUnits, units: Units) -> None:
    stored.put("uow\x1b[2J", b"", waits(0))
    for arguments in (("list",), ("show", "uow\x1b[2J")):
        printed = units(*arguments)[1]
        assert "\x1b" not in printed
        assert "\\x1b[2J" in printed


def test_nor_do_they_as_json(stored: StoredUnits, units: Units) -> None:
    evil = "uow\x9b2J\u202e"
    stored.put(evil, b"", waits(0))
    for arguments in (("list", "--json"), ("show", evil, "--json")):
        printed = units(*arguments)[1]
        assert printed.isascii()
        assert json.loads(printed)["unit"] == evil


def test_show_tells_what_it_waits_for_and_what_is_stashed_as_text_and_as_json(stored: StoredUnits, units: Units) -> None:
    driven = Driven(make_strategy(StrategySettings("SEQUENCE")))
    driven.arrive(Envelopes()(3))
    stored.keep(driven)
    code, printed, _ = units("show", "uow-1")
    assert code == 0
    assert "waits: for sequence:1 since 1970-01-01T00:16:40.000Z, " in printed
    assert " ago (1 stashed, deadline at " in printed
    assert "next: The service does not run here: it waits until it is started; its deadline was 1970-01-01T" in printed
    assert f"stashed: {PARTITION}@1  3  A  Event3" in printed
    assert "next sequence expected: 1" in printed
    story = json.loads(units("show", "uow-1", "--json")[1])
    assert (story["partition"], story["wait"]["waits_for"]) == (str(PARTITION), "sequence:1")
    assert "does not run here" in story["hindrance"]


def test_show_of_a_unit_that_is_not_there_says_so_and_ends_with_1(stored: StoredUnits, units: Units) -> None:
    stored.put("other", b"", None)
    code, printed, errors = units("show", "uow-9")
    assert code == 1
    assert errors == "resequencer: nothing is known of uow-9 with the configuration conf/application.conf\n"
    assert f"the storage has none, looked in {PARTITION}, {OTHER}" in printed
    assert "The service does not run here, so nothing of the input is read until it is started." in printed


def test_show_of_damaged_data_says_so_and_does_not_fail(stored: StoredUnits, units: Units) -> None:
    stored.put("uow-1", b"\xff", waits(0))
    code, printed, _ = units("show", "uow-1")
    assert code == 0
    assert "is damaged" in printed


def test_a_storage_that_cannot_be_read_is_no_empty_list(stored: StoredUnits, units: Units) -> None:
    stored.close()
    stored.file.write_bytes(b"no database" * 1_000)
    assert units("list")[0] == 1
    code, printed, _ = units("show", "uow-1")
    assert code == 4
    assert "could not be read" in printed


def test_with_storage_none_the_reports_are_all_that_is_known_and_it_says_so(units: Units) -> None:
    none = (f"{NOTIFICATION}.resequencer.storage-type=none",)
    code, printed, errors = units("list", overrides=("--set", *none))
    assert (code, printed) == (0, "")
    assert "in the memory of its worker" in errors
    code, printed, _ = units("show", "uow-1", overrides=("--set", *none))
    assert code == 1
    assert "in the memory of its worker" in printed
