"""The file of job events: each number once, in order, whatever a crash left."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from delivery.event_file import EventFile, EventsAfter

EVENTS = [json.dumps({"number": number, "job": "j" * 50}).encode() for number in range(1, 1_201)]


def after(number: int, most: int) -> Sequence[bytes]:
    return EVENTS[number : number + most]


def first(count: int) -> EventsAfter:
    """Return the events of a ledger that has so many."""
    return lambda number, most: EVENTS[number : min(count, number + most)]


class Mark:
    """The number that a ledger remembers; `forgets` as one does whose process dies before it notes it."""

    def __init__(self, *, forgets: bool = False) -> None:
        self.number, self._forgets = 0, forgets

    def find(self) -> int:
        return self.number

    def note(self, number: int) -> None:
        self.number = self.number if self._forgets else number


def publish_all(path: Path, mark: Mark | None = None) -> None:
    mark = mark or Mark(forgets=True)
    while EventFile(path, mark).publish(after):
        pass


def numbers(path: Path) -> list[int]:
    return [json.loads(each)["number"] for each in path.read_bytes().splitlines()]


def test_each_event_is_there_once_and_another_process_goes_on_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "out" / "job-events.jsonl"
    publish_all(path)
    publish_all(path)
    assert numbers(path) == list(range(1, 1_201))


@pytest.mark.parametrize("cut", [1, 5, 60, 200])
def test_a_half_line_is_cut_off_and_written_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "job-events.jsonl"
    publish_all(path)
    path.write_bytes(path.read_bytes()[:-cut])
    publish_all(path)
    assert numbers(path) == list(range(1, 1_201))


def test_of_several_that_publish_at_once_each_writes_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "job-events.jsonl"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: publish_all(path), range(4)))
    assert numbers(path) == list(range(1, 1_201))


def test_a_file_that_was_moved_away_begins_behind_what_was_published(tmp_path: Path) -> None:
    path, mark = tmp_path / "job-events.jsonl", Mark()
    EventFile(path, mark).publish(first(3))
    path.rename(tmp_path / "job-events.jsonl.1")
    EventFile(path, mark).publish(first(5))
    assert numbers(path) == [4, 5]


@pytest.mark.parametrize("last", [b"\n", b"nonsense\n", b'{"number": "x"}\n', b'{"number": 7, "job": "of another ledger"}\n'])
def test_lines_of_others_and_damaged_ones_hide_no_event(tmp_path: Path, last: bytes) -> None:
    path = tmp_path / "job-events.jsonl"
    EventFile(path, Mark()).publish(first(3))
    with path.open("ab") as file:
        file.write(last)
    EventFile(path, Mark()).publish(first(5))
    lines = path.read_bytes().splitlines()
    assert lines == [*EVENTS[:3], last[:-1], *EVENTS[3:5]]


def test_the_events_of_a_ledger_that_was_made_anew_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "job-events.jsonl"
    publish_all(path)
    anew = [json.dumps({"number": number, "job": "k"}).encode() for number in (1, 2)]
    EventFile(path, Mark()).publish(lambda number, most: anew[number : number + most])
    assert path.read_bytes().splitlines() == [*EVENTS, *anew]
