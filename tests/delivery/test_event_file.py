"""The file of job events: each number once, in order, whatever a crash left."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from delivery.event_file import EventFile

EVENTS = [json.dumps({"number": number, "job": "j" * 50}).encode() for number in range(1, 1_201)]


def after(number: int, most: int) -> Sequence[bytes]:
    return EVENTS[number : number + most]


def publish_all(path: Path) -> None:
    while EventFile(path).publish(after):
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
