"""What the ledger costs stays the same while it grows, and what is not needed any more goes."""

from pathlib import Path

import msgspec
import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage, item
from harness.ledger_work import counted, fill
from sqlalchemy import func, select, text, update

from notification_service.connectors.files.operations import SystemFiles
from notification_service.delivery import file_feed
from notification_service.delivery.core.answers import Failed
from notification_service.delivery.core.published_events import PublishedMark
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.ledger.services import Service
from notification_service.delivery.ledger.tables import EVENTS, SERVICES
from notification_service.delivery.source_reader import SourceReader, Sources
from tests.notification_service.delivery.ledger.test_missing import Reading
from tests.notification_service.delivery.ledger.test_missing import Service as OutputService
from tests.notification_service.delivery.ledger.test_rows import Make
from tests.notification_service.delivery.test_file_feed import line

FEW, MANY = 10, 3_000


def test_a_notification_costs_the_same_however_many_of_its_unit_wait(stage: Make) -> None:
    def deliver(count: int) -> int:
        it = stage()
        fill(it, count, f"j{count}", key=f"unit-{count}")
        (claim,) = it.claim()
        with counted(it) as work:
            it.finish([claim])
        it.ledger.cancel_job(f"j{count}")
        return work.steps

    assert deliver(MANY) <= 1.5 * deliver(FEW)


def test_what_has_failed_is_opened_again_at_the_same_cost_beside_any_number_of_rows_of_its_job(stage: Make) -> None:
    def retry(count: int) -> int:
        it, job = stage("retry.attempts = 1"), f"j{count}"
        fill(it, count, job, ended_at=it.now)
        it.take(item(f"{job}-failed", 1), job=job)
        it.finish(it.claim(), Failed("HTTP 418"))
        fill(it, count + 1, job, ended_at=it.now)
        with counted(it) as work:
            assert it.ledger.retry_failed(job, with_late=False) == (1, 0)
        assert len(it.deliver_all()) == 1
        return work.steps

    few = retry(FEW)
    assert retry(MANY) <= 1.5 * few


@pytest.mark.parametrize("steps", ["deliver", "announce-deliver"])
def test_the_upkeep_of_a_receiver_costs_the_same_beside_any_number_of_open_units(stage: Make, steps: str) -> None:
    """Whatever their step: it was looked for once by all heads, and from then on by an index."""

    def upkeep(count: int) -> int:
        it = stage(f"steps = {steps}")
        fill(it, count, f"j{count}")
        while it.ledger.fit_steps("r"):
            pass
        with counted(it) as work:
            it.ledger.fit_steps("r")
            it.ledger.end_long_pauses("r")
        return work.steps

    few = upkeep(FEW)
    assert upkeep(MANY) <= 1.5 * few


@pytest.mark.parametrize("is_live", [False, True])
def test_rows_that_cannot_be_deleted_yet_cost_the_retention_nothing_and_lock_nothing(stage: Make, is_live: bool) -> None:
    """Those of a job that is open, and of a live one whose source was not read to its end since."""

    def upkeep(count: int) -> tuple[int, int]:
        it = stage()
        if is_live:
            it.ledger.ensure_live("r", "s")
        fill(it, count, "live-r" if is_live else f"j{count}", ended_at=it.now)
        it.now += 2 * RETENTION_MS
        it.ledger.delete_expired()  # That it looks is noted once in an hour.
        with counted(it) as work:
            assert it.ledger.delete_expired() == 0
        return work.steps, work.writes

    few, many = upkeep(FEW), upkeep(MANY)
    assert many[0] <= 1.5 * few[0]
    assert (few[1], many[1]) == (0, 0)


def complete(it: LedgerStage, count: int) -> None:
    """End so many jobs, each with an event."""
    for number in range(count):
        it.take(job=f"e{number}")


def numbers(of: Ledger) -> list[int]:
    return [number for number, _ in of.events.after(0, 99)]


def test_events_go_when_their_service_has_published_them_and_they_are_old_and_numbers_go_on(stage: Make) -> None:
    it = stage()
    one, two = (it.another(service=Service(name)) for name in ("one", "two"))
    for each in (one, two, one, two, one):
        each.start_job(f"e{len(it.ledger.jobs())}", "r", "s", "ann")
    complete(it, 5)
    assert (numbers(one), numbers(two)) == ([1, 3, 5], [2, 4])
    it.now += RETENTION_MS + 1
    it.ledger.delete_expired()
    assert (numbers(one), numbers(two)) == ([1, 3, 5], [2, 4]), "none is published"
    one.events.find()
    one.events.note(PublishedMark(3, 2, 2))
    it.ledger.delete_expired()
    assert (numbers(one), numbers(two)) == ([5], [2, 4])
    two.events.find()
    two.events.note(PublishedMark(4, 2, 2))
    two.start_job("later", "r", "s", "ann")
    it.take(job="later")
    it.ledger.delete_expired()
    assert (numbers(one), numbers(two)) == ([5], [6])


def test_events_wait_for_a_trusted_clock(stage: Make) -> None:
    it = stage()
    it.trusted_ms = 10 * RETENTION_MS
    it.ledger = it.another()
    complete(it, 2)
    it.ledger.events.find()
    it.ledger.events.note(PublishedMark(2, 2, 2))
    it.now += 2 * RETENTION_MS
    it.ledger.delete_expired()
    assert numbers(it.ledger) == [1, 2]


def test_the_upkeep_costs_the_same_beside_any_number_of_published_events_that_are_not_old(stage: Make) -> None:
    def upkeep(count: int) -> int:
        it = stage()
        it.ledger.events.find()
        with it.ledger.database.write() as connection:
            first = (connection.scalar(select(func.max(EVENTS.c.number))) or 0) + 1
            new = [{"number": first + each, "at": it.now, "job": "j", "body": b"", "service": ""} for each in range(count)]
            connection.execute(EVENTS.insert(), new)
            connection.execute(update(SERVICES).values(done=first + count))
            connection.execute(text("analyze delivery_event"))
        with counted(it) as work:
            it.ledger.delete_expired()
        return work.steps

    few = upkeep(3_000)
    assert upkeep(9_000) <= 1.5 * few


def look(it: LedgerStage, portion: Portion) -> dict[str, int]:
    """Take a portion of the live job in, and return where it goes on then, as another process reads it."""
    it.ledger.ensure_live("r", "live")
    intake = it.ledger.open_intake("live-r", "w1")
    assert intake is not None
    it.ledger.take_in(intake, "r", portion)
    again = it.ledger.open_intake("live-r", "w1")
    assert again is not None
    return dict(again.positions)


def test_the_position_in_a_file_goes_a_retention_after_the_file(stage: Make) -> None:
    it = stage()
    look(it, Portion([], {"old": 7, "new": 8}, is_end=True, gone=frozenset()))
    gone = Portion([], {}, is_end=True, gone=frozenset(["old"]))
    look(it, gone)
    it.now += RETENTION_MS
    assert look(it, gone) == {"old": 7, "new": 8}
    it.ledger.delete_expired()
    it.now += 1
    assert look(it, gone) == {"old": 7, "new": 8}
    it.ledger.delete_expired()
    assert look(it, gone) == {"new": 8}


def test_the_position_in_a_file_that_was_put_back_stays(stage: Make) -> None:
    """Also if no worker looked until its time was over."""
    it = stage()
    look(it, Portion([], {"old": 7}, is_end=True, gone=frozenset()))
    look(it, Portion([], {}, is_end=True, gone=frozenset(["old"])))
    it.now += 10 * RETENTION_MS
    it.ledger.delete_expired()
    assert look(it, Portion([], {}, is_end=True, gone=frozenset())) == {"old": 7}
    it.now += 10 * RETENTION_MS
    look(it, Portion([], {}, is_end=True, gone=frozenset()))
    it.ledger.delete_expired()
    assert look(it, Portion([], {}, is_end=True, gone=frozenset())) == {"old": 7}


def test_how_far_a_file_was_read_that_is_missing_stays(stage: Make) -> None:
    it = stage()
    gone = Portion([], {"old": 7, "accounted": 7}, is_end=True, gone=frozenset(["old"]), missing=5, lacks="5 bytes")
    look(it, gone)
    it.now += 2 * RETENTION_MS
    look(it, gone)
    it.ledger.delete_expired()
    assert look(it, gone) == {"old": 7, "accounted": 7}
    found = msgspec.structs.replace(gone, missing=0, lacks=None)
    look(it, found)
    it.ledger.delete_expired()
    assert look(it, msgspec.structs.replace(found, positions={})) == {"accounted": 7}


def test_what_is_accounted_is_no_file_that_has_gone(stage: Make, tmp_path: Path) -> None:
    """Nor is a file missing that was read and then deleted, also after the ledger has forgotten its position."""
    it, service = stage(), OutputService(tmp_path / "out", rotate_bytes=1)
    reading = Reading(it, service)
    reading.read()
    service.write(3)
    assert len(reading.read()) == 3

    def positions() -> dict[str, int]:
        intake = it.ledger.open_intake("live-r", "w1")
        assert intake is not None
        return {part: at for part, at in intake.positions.items() if not part.endswith("~")}

    for path in service.directory.glob("notifications.0*.jsonl"):
        path.unlink()
    reading.read()
    before = positions()
    for _ in range(2):
        it.now += RETENTION_MS + 1
        assert (reading.read(), it.job("live-r").missing) == ([], 0)
        while it.ledger.delete_expired():
            pass
        it.ledger.delete_expired()
    after = positions()
    assert len(before) == 4
    assert (len(after), after["accounted"]) == (2, before["accounted"])
    service.write(1)
    service.output.unlink()
    service.write(1)
    assert len(reading.read()) == 1
    assert it.job("live-r").missing > 0, "a later loss is noticed"


@pytest.mark.parametrize("is_missing", [False, True])
def test_an_idle_look_costs_the_same_beside_many_rotated_files(
    stage: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_missing: bool
) -> None:
    passed, asked = [0.0], list[Path]()
    monkeypatch.setattr("notification_service.delivery.file_feed.monotonic", lambda: passed[0], raising=False)
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: asked.append(path) or stat(path, **how))

    class Counted(SystemFiles):
        def open(self, path: Path, flags: int, *others: int) -> int:
            asked.append(path)
            return super().open(path, flags, *others)

    def idle(count: int) -> tuple[int, int]:
        it, path = stage(), tmp_path / f"{count}" / "n.jsonl"
        path.parent.mkdir()
        rotated = [line("u", f"{count}-{number}") for number in range(1, count)]
        for number, content in enumerate(rotated, start=1):
            path.with_name(f"n.{number:06}.jsonl").write_bytes(content)
        path.write_bytes(line("u", f"{count}-last"))
        sources = Sources(f"live:{count}", lambda _source, receiver: file_feed.FileFeed(path, Counted(), receiver.select))
        reader = SourceReader(it.ledger, "r", "w", sources, lambda: None)
        size = path.stat().st_size
        for gone in (0, 50 if is_missing else 0):
            known = {"lengths": {path.name: size}, "before": {path.name: sum(map(len, rotated)) + gone}}
            path.with_name("positions.json").write_bytes(msgspec.json.encode(known))
            for _ in range(3):
                while reader.read():
                    pass
                passed[0] += 60
        assert it.job(it.ledger.ensure_live("r", f"live:{count}")).missing == gone
        asked.clear()
        with counted(it) as work:
            assert not reader.read()
        return work.steps, len(asked)

    few, many = idle(FEW), idle(300)
    assert few[1] == many[1]
    assert many[0] <= 2 * few[0], "on PostgreSQL the second job is looked at beside the first"
