from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from guardian.ports import TransportRefused
from notification_service.connectors.files.rotated_names import Rotated, rotated_path
from notification_service.simulator.verify.observation import TailedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.jsonl"


def read(file: TailedFile, most: int = 100) -> list[bytes]:
    return list(file.lines(most))


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def test_every_line_is_handed_out_once_as_it_comes(path: Path):
    file = TailedFile(path)
    assert read(file) == []
    append(path, b"a\nb\n")
    assert read(file) == [b"a", b"b"]
    assert read(file) == []
    append(path, b"c\n")
    assert read(file) == [b"c"]
    file.close()


def test_a_line_is_handed_out_when_its_end_is_there(path: Path):
    file = TailedFile(path)
    append(path, b"a\nbeg")
    assert read(file) == [b"a"]
    append(path, b"in")
    assert read(file) == []
    append(path, b"ning\nc")
    assert read(file) == [b"beginning"]
    file.close()


def test_no_more_lines_come_than_were_asked_for(path: Path):
    file = TailedFile(path)
    append(path, b"a\nb\nc\n")
    assert [read(file, 2), read(file, 2), read(file, 2)] == [[b"a", b"b"], [b"c"], []]
    file.close()


def test_a_file_that_was_moved_away_is_read_to_its_end_before_the_next(path: Path):
    file = TailedFile(path)
    append(path, b"a\n")
    assert read(file, 1) == [b"a"]
    append(path, b"b\n")
    path.rename(path.with_suffix(".1"))
    assert read(file) == [b"b"]
    append(path.with_suffix(".1"), b"c\n")
    append(path, b"d\n")
    assert read(file) == [b"c", b"d"]
    file.close()


def test_a_file_that_was_cut_is_refused(path: Path):
    file = TailedFile(path)
    append(path, b"a\nb\n")
    read(file)
    path.write_bytes(b"a\n")
    with pytest.raises(TransportRefused, match="was cut"):
        read(file)
    file.close()


def test_what_cannot_be_read_is_refused(path: Path):
    path.mkdir()
    with pytest.raises(TransportRefused, match=path.name):
        read(TailedFile(path))


def test_the_last_line_before_a_file_was_moved_away_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch):
    """The line is written after the end was reached, and before the reader notices that there is another file."""
    file = TailedFile(path)
    append(path, b"a\n")
    look = file._is_replaced

    def is_replaced(opened: BinaryIO) -> bool:
        monkeypatch.undo()
        append(path, b"b\n")
        path.rename(path.with_suffix(".1"))
        append(path, b"c\n")
        return look(opened)

    monkeypatch.setattr(file, "_is_replaced", is_replaced)
    assert read(file) == [b"a", b"b", b"c"]
    file.close()


def rotate(path: Path, number: int) -> Path:
    """Rotate as the service does."""
    rotated = rotated_path(path, number)
    path.rename(rotated)
    path.touch()
    return rotated


def test_what_was_rotated_before_is_handed_out_first(path: Path):
    for number in range(1, 4):
        append(path, b"%d\n" % number)
        rotate(path, number)
    append(path, b"4\n")
    file = TailedFile(path)
    assert read(file) == [b"1", b"2", b"3", b"4"]
    file.close()


@pytest.mark.parametrize("already", [0, 1, 7])
@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_whatever_is_rotated_between_two_looks_every_line_is_handed_out_once(path: Path, already: int, rotations: int):
    for number in range(1, already + 1):
        append(path, b"before\n")
        rotate(path, number)
    file = TailedFile(path)
    append(path, b"0\n")
    assert read(file)[-1:] == [b"0"]
    for number in range(1, rotations + 1):
        append(path, b"%d\n" % number)
        rotate(path, already + number)
    assert read(file) == [b"%d" % number for number in range(1, rotations + 1)]
    append(path, b"last\n")
    assert read(file) == [b"last"]
    file.close()


@pytest.mark.parametrize(
    "first_goes", [lambda path: rotate(path, 1).unlink(), lambda path: path.rename(path.with_suffix(".away"))]
)
def test_files_that_are_deleted_or_moved_by_hand_are_not_missed_while_they_are_open(path: Path, first_goes: Callable):
    append(path, b"1\n")
    file = TailedFile(path)
    assert read(file) == [b"1"]
    append(path, b"2\n")
    first_goes(path)
    append(path, b"3\n")
    rotate(path, 2)
    append(path, b"4\n")
    assert read(file) == [b"2", b"3", b"4"]
    file.close()


def test_a_file_that_is_rotated_in_the_moment_it_is_opened_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch):
    append(path, b"1\n")
    file = TailedFile(path)
    assert read(file) == [b"1"]
    append(path, b"2\n")
    rotate(path, 1)
    append(path, b"3\n")
    behind, looks = file._rotated_behind, []

    def rotated_behind(opened: BinaryIO | None) -> list[Rotated]:
        found = behind(opened)
        looks.append(found)
        if len(looks) == 1:
            # After nothing was found at the end of the first file, and before its successor is opened.
            rotate(path, 2)
            append(path, b"4\n")
        return found

    monkeypatch.setattr(file, "_rotated_behind", rotated_behind)
    assert read(file) == [b"2", b"3", b"4"]
    assert looks[0] == []
    file.close()
