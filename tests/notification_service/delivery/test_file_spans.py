"""Files of a job: what they held when it was started, whatever they are called by then and whatever came behind."""

from pathlib import Path

import pytest
from harness.receivers import receiver

from notification_service.connectors.files.operations import SystemFiles
from notification_service.delivery.file_spans import FileSpan, FileSpanFeed, span_of
from tests.notification_service.delivery.test_file_feed import line, read_all

ALL = receiver().select


def feed(*spans: FileSpan) -> FileSpanFeed:
    return FileSpanFeed(spans, SystemFiles(), ALL)


def lines(first: int, behind: int) -> bytes:
    return b"".join(line("u", f"n{number}") for number in range(first, behind))


def test_a_file_that_is_rotated_while_a_job_reads_it_is_read_to_where_it_ended(tmp_path: Path) -> None:
    path, positions = tmp_path / "notifications.jsonl", dict[str, int]()
    path.write_bytes(lines(0, 10))
    it = feed(span_of(path, is_written=True))
    positions |= it.read(positions, 4).positions
    with path.open("ab") as file:
        file.write(lines(10, 12))
    path.rename(tmp_path / "notifications.000001.jsonl")
    path.write_bytes(lines(12, 30))
    assert read_all(it, positions) == [f"n{number}" for number in range(4, 10)]
    assert it.read(positions, 4).seals


def test_what_comes_behind_is_not_delivered_and_a_half_line_of_a_live_file_neither(tmp_path: Path) -> None:
    path = tmp_path / "notifications.jsonl"
    path.write_bytes(lines(0, 2) + line("u", "n2")[:-9])
    live, given = span_of(path, is_written=True), span_of(path, is_written=False)
    assert read_all(feed(live), {}) == ["n0", "n1"]
    assert len(read_all(feed(given), {})) == 3
    with path.open("ab") as file:
        file.write(line("u", "n2")[-9:] + lines(3, 5))
    assert read_all(feed(live), {}) == ["n0", "n1"]
    assert read_all(feed(given), {}) == ["n0", "n1", "n2"]


def test_a_file_that_is_gone_or_holds_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_bytes(lines(0, 3))
    it = feed(span_of(path, is_written=False))
    path.write_bytes(lines(5, 9))
    lacks = (
        f"{len(lines(0, 3))} bytes of {path}, which is missing, or does not hold any more what it held when the job was started"
    )
    assert (it.read({}, 10).lacks, it.read({}, 10).seals) == (lacks, False)
    path.unlink()
    assert it.read({}, 10).lacks == lacks


def test_files_are_read_one_after_the_other_also_those_that_are_the_same_or_empty(tmp_path: Path) -> None:
    first, second, empty = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "c.jsonl"
    first.write_bytes(lines(0, 3))
    second.write_bytes(lines(0, 3))
    empty.write_bytes(b"")
    it = feed(*(span_of(each, is_written=False) for each in (first, empty, second)))
    assert read_all(it, {}, 2) == ["n0", "n1", "n2", "n0", "n1", "n2"]
    assert feed(span_of(empty, is_written=True)).read({}, 2).seals


def test_large_records_make_small_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "n.jsonl"
    path.write_bytes(lines(0, 10))
    monkeypatch.setattr("notification_service.delivery.file_spans.MAX_BYTES", 3 * (len(line("u", "n0")) - 1))
    assert len(feed(span_of(path, is_written=False)).read({}, 100).items) == 3
