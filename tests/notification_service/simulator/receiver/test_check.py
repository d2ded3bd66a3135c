"""The comparison of what the receiver took with the notifications: it finds every planted fault."""

import json
from pathlib import Path

import pytest

from notification_service.simulator.receiver.__main__ import main
from notification_service.simulator.receiver.check import compare
from notification_service.simulator.receiver.receiver import CALLS, TAKEN, UNITS

EXPECTED = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3"), ("b", "b2")]
RIGHT = [("b", "b1"), ("a", "a1"), ("a", "a2"), ("b", "b2"), ("a", "a3")]


def keep(directory: Path, taken: list[tuple[str, str | None]], refused: tuple[str, ...] = ()) -> None:
    lines = ({"at": 1.0, "unit": unit, "key": key, "status": None, "path": "/"} for unit, key in taken)
    (directory / TAKEN).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    changes = [("c", "announced"), *((unit, "refused") for unit in refused)]
    (directory / UNITS).write_text("".join(f"{json.dumps({'at': 1.0, 'unit': unit, 'is': what})}\n" for unit, what in changes))


def faults(directory: Path) -> dict[str, tuple[str, ...]]:
    found = compare(directory, EXPECTED)
    named = {name: getattr(found, name) for name in ("lost", "doubled", "misplaced", "unexpected")}
    deviations = {name: texts for name, texts in named.items() if texts}
    assert found.is_good == (not deviations)
    return deviations


def test_what_came_once_and_in_order_per_unit_is_good(tmp_path: Path) -> None:
    keep(tmp_path, [*RIGHT])
    assert faults(tmp_path) == {}


@pytest.mark.parametrize(
    ("taken", "found"),
    [
        (RIGHT[:-1], {"lost": ("a a3",)}),
        ([], {"lost": ("a a1", "a a2", "a a3", "b b1", "b b2")}),
        ([*RIGHT, ("b", "b1")], {"doubled": ("b b1",)}),
        ([RIGHT[0], RIGHT[2], RIGHT[1], *RIGHT[3:]], {"misplaced": ("a a1",)}),
        ([*RIGHT, ("a", "b1"), ("c", "c1"), ("b", None)], {"unexpected": ("a b1", "b None", "c c1")}),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, taken: list[tuple[str, str | None]], found: dict[str, tuple[str, ...]]) -> None:
    keep(tmp_path, taken)
    assert faults(tmp_path) == found


def test_of_a_refused_unit_notifications_may_be_missing_but_not_out_of_order(tmp_path: Path) -> None:
    keep(tmp_path, [("a", "a2"), ("b", "b1"), ("b", "b2")], refused=("a",))
    assert faults(tmp_path) == {}
    keep(tmp_path, [("a", "a2"), ("a", "a1"), ("b", "b1"), ("b", "b2")], refused=("a",))
    assert faults(tmp_path) == {"misplaced": ("a a1",)}


def test_a_repeat_is_needless_unless_an_answer_was_lost_or_late(tmp_path: Path) -> None:
    keep(tmp_path, [*RIGHT])
    calls = [("unanswered", "a1"), ("repeated", "a1"), ("repeated", "a2"), ("unanswered", "a3"), ("repeated", "a1")]
    lines = ({"at": 1.0, "unit": "a", "key": key, "is": kind} for kind, key in calls)
    (tmp_path / CALLS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = compare(tmp_path, EXPECTED)
    assert (found.repeated, sorted(found.needless), found.is_good) == (3, ["a a1", "a a2"], True)
    assert "needless calls         2" in found.table()


def test_a_line_that_a_kill_cut_off_was_not_taken(tmp_path: Path) -> None:
    keep(tmp_path, [*RIGHT])
    with (tmp_path / TAKEN).open("a") as file:
        file.write('{"at": 1.0, "unit": "a", "key"')
    assert faults(tmp_path) == {}


def test_the_command_prints_a_table_and_its_exit_code_tells_of_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for file, part in zip(files, (EXPECTED[:2], EXPECTED[2:]), strict=True):
        lines = ({"key": unit, "headers": {"notification-id": key}, "value": "<xml/>"} for unit, key in part)
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    order = ["check", "--directory", str(tmp_path), *map(str, files)]
    keep(tmp_path, [*RIGHT])
    assert main(order) == 0
    assert capsys.readouterr().out.splitlines()[1:6] == [
        "notifications          5",
        "taken                  5",
        "units refused          0",
        "repeated               0",
        "lost                   0",
    ]
    keep(tmp_path, RIGHT[:-1])
    assert main(order) == 1
    assert "lost                   1  a a3\n" in capsys.readouterr().out


def test_a_file_that_holds_no_notifications_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"key": "a", "headers": {"notification-id": "a1"}, "value": ""}\n{"key": "a"}\n')
    assert main(["check", "--directory", str(tmp_path), str(file)]) == 1
    assert f"check: {file}, line 2: no notification with key and notification-id" in capsys.readouterr().out
