"""The file of job events: the end of each job once, with numbers in order, whatever a crash or a restore left."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from harness.synced import noting_syncs

from notification_service.delivery.core.jobs import JobEvent, JobState
from notification_service.delivery.core.published_events import PublishedMark
from notification_service.delivery.event_file import EventFile


def event(number: int, job: str = "", *, ledger: str = "l", service: str = "s", processed: int = 3, run: int = 1) -> JobEvent:
    counts = {"expected": 3, "processed": processed, "rejected": 0, "failed": 3 - processed, "cancelled": 0}
    named = {"ledger": ledger, "number": number, "job": job or f"j{number}", "receiver": "r", "state": JobState.COMPLETE}
    return JobEvent(**named, run=run, at=number, service=service, **counts)  # type: ignore[arg-type]


class Log:
    """The ends that a ledger has; `forgets` as one does whose process dies before it notes what it has published."""

    def __init__(self, events: Iterable[JobEvent], ledger: str = "l", service: str = "s", *, forgets: bool = False) -> None:
        self.events, self.ledger, self.service, self._forgets = list(events), ledger, service, forgets
        self.mark = PublishedMark()

    def find(self) -> PublishedMark:
        return self.mark

    def note(self, mark: PublishedMark) -> None:
        self.mark = self.mark if self._forgets else mark

    def after(self, done: int, most: int) -> Sequence[tuple[int, JobEvent]]:
        return [(each.number, each) for each in self.events if each.number > done][:most]

    def ended(self, events: Sequence[JobEvent]) -> set[tuple[str, int]]:
        jobs = {each.job for each in events}
        return {(each.job, each.run) for each in self.events if each.job in jobs}


def log(count: int, **others: bool) -> Log:
    return Log((event(number) for number in range(1, count + 1)), **others)


def publish_all(path: Path, log: Log) -> None:
    while EventFile(path, log).publish():
        pass


def numbers(path: Path) -> list[int]:
    return [json.loads(each)["number"] for each in path.read_bytes().splitlines()]


def jobs(path: Path) -> list[str]:
    return [json.loads(each)["job"] for each in path.read_bytes().splitlines()]


def test_each_event_is_there_once_and_another_process_goes_on_behind_it(tmp_path: Path) -> None:
    path, it = tmp_path / "out" / "job-events.jsonl", log(1_200)
    publish_all(path, it)
    publish_all(path, it)
    assert numbers(path) == list(range(1, 1_201))
    assert it.mark == PublishedMark(1_200, 1_200, 1_200)


@pytest.mark.parametrize("cut", [1, 5, 60, 400])
def test_a_half_line_is_cut_off_and_written_again_by_a_log_that_has_noted_nothing(tmp_path: Path, cut: int) -> None:
    path, it = tmp_path / "job-events.jsonl", log(450, forgets=True)
    publish_all(path, it)
    path.write_bytes(path.read_bytes()[:-cut])
    publish_all(path, it)
    assert numbers(path) == list(range(1, 451))


@pytest.mark.parametrize("last", [b"x" * 100_000, b'{"of": "another', b"no event"])
def test_a_last_line_without_an_end_that_is_no_half_event_stays(tmp_path: Path, last: bytes) -> None:
    path, it = tmp_path / "job-events.jsonl", log(0)
    path.write_bytes(b"first\n" + last)
    publish_all(path, it)
    assert path.read_bytes() == b"first\n" + last
    it.events.append(event(1))
    publish_all(path, it)
    assert path.read_bytes().splitlines()[:-1] == [b"first", last]


def test_an_event_that_lacks_only_its_end_of_line_is_not_published_again(tmp_path: Path) -> None:
    path, it = tmp_path / "job-events.jsonl", log(2, forgets=True)
    publish_all(path, it)
    path.write_bytes(path.read_bytes()[:-1])
    it.events.append(event(3))
    publish_all(path, it)
    assert numbers(path) == [1, 2, 3]


def test_of_several_that_publish_at_once_each_writes_what_is_missing(tmp_path: Path) -> None:
    path, it = tmp_path / "job-events.jsonl", log(400, forgets=True)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: publish_all(path, it), range(4)))
    assert numbers(path) == list(range(1, 401))


def test_a_file_that_was_moved_away_begins_behind_what_was_published(tmp_path: Path) -> None:
    path, it = tmp_path / "job-events.jsonl", log(3)
    EventFile(path, it).publish()
    path.rename(tmp_path / "job-events.jsonl.1")
    it.events += [event(4), event(5)]
    EventFile(path, it).publish()
    assert numbers(path) == [4, 5]


@pytest.mark.parametrize(
    "last",
    [
        b"",
        b"nonsense",
        b'{"number": "x"}',
        msgspec.json.encode(event(7, ledger="k")),
        msgspec.json.encode(event(7)).replace(b'"number":7', b'"number":99999999999999999999'),
    ],
)
def test_lines_of_others_and_damaged_ones_hide_no_event(tmp_path: Path, last: bytes) -> None:
    path, it = tmp_path / "job-events.jsonl", log(3)
    EventFile(path, it).publish()
    with path.open("ab") as file:
        file.write(last + b"\n")
    it.events += [event(4), event(5)]
    EventFile(path, it).publish()
    lines = path.read_bytes().splitlines()
    assert lines.pop(3) == last
    assert [json.loads(each)["number"] for each in lines] == [1, 2, 3, 4, 5]


def test_the_events_of_a_ledger_that_was_made_anew_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "job-events.jsonl"
    publish_all(path, log(5))
    publish_all(path, Log([event(1), event(2)], ledger="anew"))
    assert numbers(path) == [1, 2, 3, 4, 5, 1, 2]


@pytest.mark.parametrize("portion", [1, 9])
def test_after_a_restore_of_the_ledger_what_was_published_is_not_published_again_and_no_number_is_used_twice(
    tmp_path: Path, portion: int
) -> None:
    """The backup has two ends. Then a, b and c end; after the restore they end again, in another order, and c with a failure."""
    path, it = tmp_path / "job-events.jsonl", log(2)
    publish_all(path, it)
    backup = Log(it.events)
    backup.mark = it.mark
    it.events += [event(3, "a"), event(4, "b"), event(5, "c")]
    publish_all(path, it)
    again = [event(3, "b"), event(4, "c", processed=2), event(5, "d"), event(6, "a"), event(7, "a", run=2)]
    for first in range(0, len(again), portion):
        backup.events += again[first : first + portion]
        publish_all(path, backup)
    assert list(zip(numbers(path), jobs(path), strict=True)) == [
        *[(1, "j1"), (2, "j2"), (3, "a"), (4, "b"), (5, "c")],
        *[(6, "c"), (7, "d"), (8, "a")],
    ]
    assert backup.mark == PublishedMark(7, 8, 8), "all of it has ended in the ledger: nothing is compared any more"


def test_two_services_with_one_file_number_each_their_own(tmp_path: Path) -> None:
    path = tmp_path / "job-events.jsonl"
    one, other = log(2), Log([event(3, "x"), event(5, "y")], service="t")
    publish_all(path, one)
    publish_all(path, other)
    one.events += [event(4, "z")]
    publish_all(path, one)
    written = [msgspec.json.decode(each, type=JobEvent) for each in path.read_bytes().splitlines()]
    assert [(each.service, each.number, each.job) for each in written] == [
        ("s", 1, "j1"), ("s", 2, "j2"), ("t", 1, "x"), ("t", 2, "y"), ("s", 3, "z"),
    ]  # fmt: skip


def test_an_event_that_a_version_without_services_has_published_and_not_noted_is_not_published_again(tmp_path: Path) -> None:
    path, it = tmp_path / "job-events.jsonl", log(4)
    it.mark = PublishedMark(2, 2, 2)
    before = [{name: of for name, of in msgspec.to_builtins(event(number)).items() if name != "service"} for number in (1, 2, 3)]
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in before))
    publish_all(path, it)
    assert (numbers(path), jobs(path)) == ([1, 2, 3, 4], ["j1", "j2", "j3", "j4"])
    unknown = Log([event(9, "x")], service="t")
    publish_all(path, unknown)
    assert numbers(path)[-1] == 1, "another service begins with its first number"


def test_each_process_syncs_the_name_of_the_file_before_it_notes_what_it_has_published(tmp_path: Path) -> None:
    """An earlier one may have been killed before it did; a file that was moved away has a successor, whose name is new."""
    path, all_events = tmp_path / "events.jsonl", log(3)
    files = [EventFile(path, Log(all_events.events[:count])) for count in (1, 2)]
    for each in files:
        with noting_syncs() as synced:
            each.publish()
        assert synced == [str(path), str(tmp_path)]
    again = EventFile(path, all_events)
    again.publish()
    path.rename(tmp_path / "moved")
    all_events.events += [event(4)]
    with noting_syncs() as synced:
        again.publish()
    assert synced == [str(path), str(tmp_path)]
    all_events.events += [event(5)]
    with noting_syncs() as synced:
        again.publish()
    assert synced == [str(path)]
