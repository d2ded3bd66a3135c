"""Notifications from files: each line once, in order, whatever the files are called by then."""

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from harness.receivers import receiver

from notification_service.connectors.files.operations import SystemFiles
from notification_service.delivery.file_feed import FileFeed
from notification_service.delivery.settings import Select

ALL = receiver().select


def line(unit: str | None, identifier: str | None = None, **headers: str) -> bytes:
    named = {**headers, **({"notification-id": identifier} if identifier else {})}
    fields: dict[str, Any] = {"headers": named, "value": {"a": 1}} | ({"key": unit} if unit is not None else {})
    return json.dumps(fields).encode() + b"\n"


def feed(path: Path, select: Select = ALL) -> FileFeed:
    return FileFeed(path, SystemFiles(), select)


def read_all(of: FileFeed, positions: dict[str, int], limit: int = 3) -> list[str]:
    found = []
    while True:
        portion = of.read(positions, limit)
        found += [each.dedup for each in portion.items]
        positions |= portion.positions
        if portion.is_end:
            return found


def test_lines_are_read_once_in_order_over_a_rotation_and_a_line_without_its_end_is_waited_for(tmp_path: Path) -> None:
    path, positions = tmp_path / "notifications.jsonl", dict[str, int]()
    path.write_bytes(b"".join(line("u", f"n{number}") for number in range(5)) + b'{"key": "u", "val')
    it = feed(path)
    assert read_all(it, positions) == ["n0", "n1", "n2", "n3", "n4"]
    assert read_all(it, positions) == []
    with path.open("ab") as file:
        file.write(b'ue": 5}\n')
    path.rename(tmp_path / "notifications.000001.jsonl")
    path.write_bytes(line("u", "n6"))
    assert [(each.rpartition("@")[0] and "n5") or each for each in read_all(feed(path), positions)] == ["n5", "n6"]


def test_what_is_no_record_is_told_and_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "notifications.jsonl"
    path.write_bytes(b"nonsense\n" + line(None, "n1") + line("u\x00v", "n2") + line("u") + line("u", "n4"))
    portion = feed(path).read({}, 10)
    assert [bool(each.defect) for each in portion.items] == [True, True, True, False, False]
    assert [each.key for each in portion.items[3:]] == ["u", "u"]
    assert len({each.dedup for each in portion.items}) == 5
    assert portion.items[0].value == b"nonsense"


def test_what_no_database_and_no_header_would_take_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "notifications.jsonl"
    path.write_bytes(
        line("u" * 5_000, "n1") + line("u", "n" * 5_000) + line("u", "n\r\nx: y") + line("é" * 256, "n4") + line("u", " n5")
    )
    first, second, third, fourth, fifth = feed(path).read({}, 10).items
    assert "has 5000 characters" in (first.defect or "")
    assert len(first.key) == 256
    assert "notification-id has 5000 characters" in (second.defect or "")
    assert "notification-id contains a control character" in (third.defect or "")
    assert max(len(each.dedup) for each in (first, second, third)) < 100
    assert (fourth.defect, fourth.dedup) == (None, "n4")
    assert "begins or ends with a space" in (fifth.defect or "")


def test_statuses_and_entities_select_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "notifications.jsonl"
    lines = [
        line("u", "n0", **{"transaction-status": "ACSC", "processing-entity": "A"}),
        line("u", "n1", **{"transaction-status": "RJCT", "processing-entity": "A"}),
        line("u", "n2", **{"transaction-status": "ACSC", "processing-entity": "B"}),
        line("u", "n3"),
    ]
    path.write_bytes(b"".join(lines))
    select = receiver("select { statuses = [ACSC], entities = [A] }").select
    portion = feed(path, select=select).read({}, 10)
    assert ([each.dedup for each in portion.items], portion.not_selected) == (["n0"], 3)


def test_two_files_may_begin_alike(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    (tmp_path / "n.000001.jsonl").write_bytes(b"".join(line("u", f"n{number}") for number in range(5)))
    path.write_bytes(line("u", "n0") + b"".join(line("u", f"m{number}") for number in range(8)))
    for limit in (2, 100):
        found = [*(f"n{number}" for number in range(5)), "n0", *(f"m{number}" for number in range(8))]
        assert read_all(feed(path), {}, limit) == found


def test_an_output_that_is_rotated_while_it_is_read_is_read_in_order(tmp_path: Path) -> None:
    path, rotated = tmp_path / "n.jsonl", tmp_path / "n.000001.jsonl"
    path.write_bytes(line("u", "n0") + line("u", "n1"))
    positions: dict[str, int] = {}
    assert read_all(feed(path), positions) == ["n0", "n1"]
    with path.open("ab") as file:
        file.write(line("u", "n2"))

    class Rotating(SystemFiles):
        """Rotates the output before it is opened for the first time."""

        def open(self, of: Path, flags: int, *others: int) -> int:
            if not rotated.exists():
                path.rename(rotated)
                path.write_bytes(line("u", "n3") + line("u", "n4") + line("u", "n5"))
            return super().open(of, flags, *others)

    it = FileFeed(path, Rotating(), ALL)
    assert read_all(it, positions) == ["n2", "n3", "n4", "n5"]


def test_a_rotation_is_seen_in_a_directory_that_has_not_changed_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, positions, passed = tmp_path / "n.jsonl", dict[str, int](), [0.0]
    monkeypatch.setattr("notification_service.delivery.file_feed.monotonic", lambda: passed[0])
    it, found = feed(path), list[str]()
    changes = count(1_000)

    def change() -> None:
        """Let the directory have changed at another instant, as it has when two seconds have really passed."""
        os.utime(tmp_path, (next(changes),) * 2)

    for number in range(4):
        path.write_bytes(line("u", f"n{number}"))
        change()
        for _ in range(3):
            found += read_all(it, positions)
            passed[0] += 60
        path.rename(tmp_path / f"n.00000{number + 1}.jsonl")
        change()
    assert found == ["n0", "n1", "n2", "n3"]
    assert it.read(positions, 9).gone == frozenset()


def test_the_parts_whose_files_are_missing_are_reported(tmp_path: Path) -> None:
    path, positions = tmp_path / "n.jsonl", dict[str, int]()
    rotated = tmp_path / "n.000001.jsonl"
    rotated.write_bytes(line("u", "n0"))
    path.write_bytes(line("u", "n1"))
    it = feed(path)
    first = it.read(positions, 1)
    assert first.gone is None, "not all files were looked at"
    positions |= first.positions
    read_all(it, positions)
    rotated.rename(tmp_path / "taken")
    assert it.read(positions, 9).gone == {part for part in first.positions if part != "accounted"}
    (tmp_path / "taken").rename(rotated)
    assert it.read(positions, 9).gone == frozenset()


def test_large_records_make_small_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "n.jsonl"
    path.write_bytes(b"".join(line("u", f"n{number}") for number in range(10)))
    monkeypatch.setattr("notification_service.delivery.file_feed.MAX_BYTES", 3 * (len(line("u", "n0")) - 1))
    portion = feed(path).read({}, 100)
    assert (len(portion.items), portion.is_end) == (3, False)
    assert len(read_all(feed(path), dict(portion.positions), 100)) == 7
