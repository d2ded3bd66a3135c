"""Services that share a ledger: whose jobs are whose, who publishes their ends, and which directory is the service's."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage, item
from harness.receivers import receiver
from sqlalchemy import text

from notification_service.connectors.files.operations import SystemFiles
from notification_service.delivery.core.jobs import JobEvent
from notification_service.delivery.errors import RunDirectoryCopied
from notification_service.delivery.event_file import EventFile
from notification_service.delivery.file_feed import FileFeed
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.jobs import Former
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.ledger.services import LEASE_MS, RENEWED_MS, Service
from notification_service.delivery.source_reader import SourceReader, Sources
from tests.notification_service.delivery.test_file_feed import line

Make = Callable[..., LedgerStage]


def end(it: LedgerStage, job: str, *, of: Ledger) -> None:
    """Start a job of a service, and deliver it by the ledger of the stage, whose service is none."""
    of.start_job(job, "r", "s", "ann")
    it.take(item("a", len(it.ledger.jobs())), job=job)
    it.deliver_all()


def publish(of: Ledger, file: Path) -> list[tuple[int, str]]:
    """Publish what waits; return number and job of all lines."""
    EventFile(file, of.events).publish()
    in_file = [msgspec.json.decode(each, type=JobEvent) for each in file.read_bytes().splitlines()]
    return [(each.number, each.job) for each in in_file]


def test_each_service_publishes_the_ends_of_its_own_jobs_with_numbers_without_a_gap(stage: Make, tmp_path: Path) -> None:
    it = stage()
    one, two = it.another(service=Service("one")), it.another(service=Service("two"))
    for number in range(4):
        end(it, f"j{number}", of=(one, two)[number % 2])
    assert publish(one, tmp_path / "one") == [(1, "j0"), (2, "j2")]
    assert publish(two, tmp_path / "two") == [(1, "j1"), (2, "j3")]
    end(it, "j4", of=two)
    assert publish(one, tmp_path / "one") == [(1, "j0"), (2, "j2")]
    assert publish(two, tmp_path / "two") == [(1, "j1"), (2, "j3"), (3, "j4")]
    assert one.events.ledger == two.events.ledger


def test_the_first_service_owns_what_was_there_before_and_goes_on_with_its_numbers(stage: Make, tmp_path: Path) -> None:
    it = stage()
    for job in ("published", "waiting"):
        end(it, job, of=it.ledger)
    with it.ledger.database.write() as connection:
        connection.execute(text("insert into delivery_counter (name, value) values ('published', 1)"))
    it.ledger.start_job("open", "r", "s", "ann")
    one, two = it.another(service=Service("one")), it.another(service=Service("two"))
    assert publish(one, tmp_path / "one") == [(2, "waiting")]
    assert publish(two, tmp_path / "two") == []
    it.take(item("b", 1), job="open")
    it.deliver_all()
    assert publish(two, tmp_path / "two") == []
    assert publish(one, tmp_path / "one") == [(2, "waiting"), (3, "open")]


def test_an_end_that_a_version_without_services_writes_late_is_published_once(stage: Make, tmp_path: Path) -> None:
    """As while machines are upgraded one after the other."""
    it = stage()
    one, file = it.another(service=Service("one")), tmp_path / "one"
    for job in ("j1", "j2"):
        end(it, job, of=one)
    assert publish(one, file) == [(1, "j1"), (2, "j2")]
    end(it, "late", of=it.ledger)
    end(it, "j4", of=one)
    with it.ledger.database.write() as connection:
        connection.execute(text("update delivery_event set service = '' where job = 'late'"))
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j4")]
    it.now += RENEWED_MS
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j4"), (4, "late")]
    assert len(publish(one, file)) == 4


def test_after_a_restore_of_the_database_each_end_is_published_once(tmp_path: Path) -> None:
    file, backup, now = tmp_path / "events", tmp_path / "backup.db", tmp_path / "now.db"
    it = LedgerStage(f"sqlite:///{now}", receiver())
    one = it.another(service=Service("one"))
    end(it, "j1", of=one)
    one.start_job("j2", "r", "s", "ann")
    publish(one, file)
    it.close()
    shutil.copy(now, backup)
    it = LedgerStage(f"sqlite:///{now}", receiver())
    one = it.another(service=Service("one"))
    for job in ("j2", "j3", "j4"):
        end(it, job, of=one)
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j3"), (4, "j4")]
    it.close()
    it = LedgerStage(f"sqlite:///{backup}", receiver())
    one = it.another(service=Service("one"))
    for job in ("j4", "j2", "j5", "j3"):
        end(it, job, of=one)
        publish(one, file)
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j3"), (4, "j4"), (5, "j5")]
    it.close()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_retention_has_deleted_is_not_compared_for_ever(stage: Make, tmp_path: Path, *, is_deleted: bool) -> None:
    """An end that comes late lets all be compared once more that is published; events of old ends are gone, and their jobs."""
    it = stage()
    one, file = it.another(service=Service("one")), tmp_path / "one"
    for job in ("j1", "j2"):
        end(it, job, of=one)
    publish(one, file)
    if is_deleted:
        it.now += RETENTION_MS + 1
        for _ in range(4):
            it.ledger.delete_expired()
        assert ([each.id for each in one.jobs()], one.events.after(0, 9)) == ([], [])
    one.enter()
    end(it, "late", of=it.ledger)
    end(it, "j4", of=one)
    with it.ledger.database.write() as connection:
        connection.execute(text("update delivery_event set service = '' where job = 'late'"))
    publish(one, file)
    it.now += RENEWED_MS
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j4"), (4, "late")]
    mark = one.events.find()
    assert (mark.number, mark.compared) == (4, 4)


def test_after_a_restore_ends_are_compared_that_come_again_until_they_have_or_are_older_than_the_retention(
    tmp_path: Path,
) -> None:
    file, backup, now = tmp_path / "events", tmp_path / "backup.db", tmp_path / "now.db"
    it = LedgerStage(f"sqlite:///{now}", receiver())
    one = it.another(service=Service("one"))
    one.start_job("j1", "r", "s", "ann")
    one.enter()
    it.close()
    shutil.copy(now, backup)
    it = LedgerStage(f"sqlite:///{now}", receiver())
    one = it.another(service=Service("one"))
    for job in ("j1", "j2"):
        end(it, job, of=one)
    assert publish(one, file) == [(1, "j1"), (2, "j2")]
    it.close()
    it = LedgerStage(f"sqlite:///{backup}", receiver())
    one = it.another(service=Service("one"))
    end(it, "j3", of=one)
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j3")]
    assert one.events.find().compared == 0
    it.now += RETENTION_MS + 1
    for _ in range(4):
        it.ledger.delete_expired()
    end(it, "j4", of=one)
    publish(one, file)
    assert one.events.find().compared == 0, "j1 is open"
    end(it, "j1", of=one)
    assert publish(one, file) == [(1, "j1"), (2, "j2"), (3, "j3"), (4, "j4")]
    assert one.events.find().compared == 4, "j2 was lost, and is old"
    it.close()


def test_a_copy_of_a_run_directory_beside_the_original_is_refused_with_a_remedy_and_reads_and_publishes_nothing(
    stage: Make, tmp_path: Path
) -> None:
    it = stage()
    original, copy = (it.another(service=Service("one", home)) for home in ("host:/run", "other:/run"))
    original.enter()
    read: list[str] = []
    feed = FileFeed(tmp_path / "n.jsonl", SystemFiles(), it.receiver.select)
    reader = SourceReader(copy, "r", "w2", Sources("live:one", lambda source, _: read.append(source) or feed), lambda: 0)  # type: ignore[func-returns-value]
    for _ in range(2 * LEASE_MS // RENEWED_MS):
        it.now += RENEWED_MS
        original.enter()
        reader.read()
        assert read == []
        assert "other:/run has the id one, which the one at host:/run uses now" in str(reader.problem)
        assert "delete the file service-id" in str(reader.problem)
        with pytest.raises(RunDirectoryCopied):
            EventFile(tmp_path / "events", copy.events).publish()
    it.now += LEASE_MS
    reader.read()
    assert (read, reader.problem) == (["live:one"], None), "the directory was moved: nothing runs where it was"
    with pytest.raises(RunDirectoryCopied):
        original.enter()


def portion(*numbers: int, **others: object) -> Portion:
    return Portion([item("u", number, **others) for number in numbers], {"p": max(numbers)}, is_end=True)


def take(it: LedgerStage, job: str, *numbers: int) -> int:
    intake = it.ledger.open_intake(job, "w1")
    assert intake is not None
    return it.ledger.take_in(intake, "r", portion(*numbers))


def test_the_live_jobs_of_a_receiver_remember_duplicates_together_and_other_jobs_each_its_own(stage: Make) -> None:
    it = stage()
    first, second = it.ledger.ensure_live("r", "live:one"), it.ledger.ensure_live("r", "live:two")
    assert first != second
    assert take(it, first, 1, 2) == 2
    assert take(it, second, 1, 2, 3) == 1
    assert (it.job(second).read, it.job(second).duplicates, it.job(second).ingested) == (3, 2, 1)
    it.ledger.start_job("again", "r", "s", "ann")
    assert take(it, "again", 1, 2, 3) == 3, "a day that is delivered again on purpose"
    schedule = it.ledger.schedule_job("daily", "r")
    assert take(it, schedule, 1) == 1
    assert take(it, first, 4) == 1


def test_services_that_had_one_job_for_their_topics_get_one_each_that_goes_on_where_it_was(stage: Make) -> None:
    it = stage()
    one, two, three = (it.another(service=Service(name)) for name in ("one", "two", "three"))
    job = one.ensure_live("r", "live")
    intake = one.open_intake(job, "w1")
    assert intake is not None
    one.take_in(intake, "r", Portion([], {"a/0": 5, "b/0": 7, "b/1": 8}, is_end=True))

    def ensure(ledger: Ledger, source: str, *parts: str) -> tuple[str, dict[str, int]]:
        name = ledger.ensure_live("r", source, Former("live", lambda: parts, shares_parts=True))
        intake = ledger.open_intake(name, f"w {source}")
        return name, {} if intake is None else dict(intake.positions)

    two_s, positions = ensure(two, "live:two", "b/0", "b/1", "b/2")
    assert positions == {"b/0": 7, "b/1": 8}
    it.now += 2 * LEASE_MS
    assert ensure(one, "live:one", "a/0")[0] == job != two_s
    assert ensure(two, "live:two", "b/0")[0] == two_s
    three_s, positions = ensure(three, "live:three", "c/0")
    assert (three_s not in (job, two_s), positions) == (True, {})
    assert it.job(job).source == "live:one"


def test_what_one_live_job_remembers_stays_while_another_of_its_receiver_is_behind(stage: Make) -> None:
    it = stage()
    one, two = it.ledger.ensure_live("r", "live:one"), it.ledger.ensure_live("r", "live:two")
    take(it, one, 1)
    take(it, two, 2)
    it.deliver_all()
    it.now += RETENTION_MS // 2
    take(it, one, 1)
    for _ in range(2):
        it.now += RETENTION_MS + 1
        take(it, one, 1)
        it.ledger.delete_expired()
    assert take(it, two, 1, 2) == 0, "the source of the second job could not be read meanwhile"
    it.now += RETENTION_MS + 1
    take(it, one, 1)
    take(it, two, 2)
    it.ledger.delete_expired()
    assert take(it, two, 1) == 1


@pytest.mark.parametrize("moved", [False, True])
def test_a_job_of_before_is_taken_over_also_when_host_and_path_have_changed(stage: Make, tmp_path: Path, *, moved: bool) -> None:
    it, output = stage(), tmp_path / "notifications.jsonl"
    output.write_bytes(line("u", "n1"))
    feed = FileFeed(output, SystemFiles(), it.receiver.select)
    others = it.ledger.ensure_live("r", "live:other:/run/notifications.jsonl")
    job = it.ledger.ensure_live("r", "live:host:/run/notifications.jsonl")
    intake = it.ledger.open_intake(job, "w1")
    assert intake is not None
    assert it.ledger.take_in(intake, "r", feed.read({}, 10)) == 1
    former = Former(f"live:{'new' if moved else 'host'}:/run/notifications.jsonl", feed.find_parts)
    assert it.ledger.ensure_live("r", "live:1234", former) == job
    assert it.ledger.ensure_live("r", "live:1234", former) == job
    assert it.job(job).source == "live:1234"
    assert it.job(others).source == "live:other:/run/notifications.jsonl"
    output.write_bytes(line("u", "n2"))
    assert it.ledger.ensure_live("r", "live:5678", former) not in (job, others), "of an output that no job has read"
