"""What the ledger costs stays the same while it grows, and what nobody needs any more goes."""

from pathlib import Path

import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage
from harness.ledger_work import counted, fill

from connectors.files.operations import SystemFiles
from delivery.feeds import files
from delivery.ledger.intake import Portion
from delivery.source_reader import SourceReader, Sources
from tests.delivery.feeds.test_files import line
from tests.delivery.ledger.test_rows import Make

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


@pytest.mark.parametrize("is_live", [False, True])
def test_rows_that_cannot_be_deleted_yet_cost_the_retention_nothing_and_lock_nothing(stage: Make, is_live: bool) -> None:
    """Those of a job that is open, and of a live one whose source was not read to its end since."""

    def upkeep(count: int) -> tuple[int, int]:
        it = stage()
        if is_live:
            it.ledger.ensure_live("r", "s")
        fill(it, count, "live-r" if is_live else f"j{count}", ended_at=it.now)
        it.now += 2 * RETENTION_MS
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


def test_events_go_when_they_are_published_and_old_and_numbers_go_on(stage: Make) -> None:
    it = stage()
    complete(it, 3)
    it.now += RETENTION_MS + 1
    it.ledger.delete_expired()
    assert len(it.ledger.events_after(0, 9)) == 3, "none is published"
    it.ledger.published.note(2)
    it.ledger.delete_expired()
    assert [b'"number":2,' in each for each in it.ledger.events_after(0, 9)] == [True, False]
    it.ledger.published.note(3)
    it.take(job="later")
    it.ledger.delete_expired()
    assert [b'"number":3,' in each for each in it.ledger.events_after(0, 9)] == [True, False]
    assert b'"number":4,' in it.ledger.events_after(3, 9)[0]


def test_events_wait_for_a_trusted_clock(stage: Make) -> None:
    it = stage()
    it.trusted_ms = 10 * RETENTION_MS
    it.ledger = it.another()
    complete(it, 2)
    it.ledger.published.note(2)
    it.now += 2 * RETENTION_MS
    it.ledger.delete_expired()
    assert len(it.ledger.events_after(0, 9)) == 2


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


def test_an_idle_look_costs_the_same_beside_many_rotated_files(
    stage: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, asked = [0.0], list[Path]()
    monkeypatch.setattr("delivery.feeds.files.monotonic", lambda: passed[0], raising=False)
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: asked.append(path) or stat(path, **how))

    class Counted(SystemFiles):
        def open(self, path: Path, flags: int, *others: int) -> int:
            asked.append(path)
            return super().open(path, flags, *others)

    def idle(count: int) -> tuple[int, int]:
        it, path = stage(), tmp_path / f"{count}" / "n.jsonl"
        path.parent.mkdir()
        for number in range(1, count):
            path.with_name(f"n.{number:06}.jsonl").write_bytes(line("u", f"{count}-{number}"))
        path.write_bytes(line("u", f"{count}-last"))
        sources = Sources(f"live:{count}", lambda _source, receiver: files.FileFeed(path, Counted(), receiver.select))
        reader = SourceReader(it.ledger, "r", "w", sources, lambda: None)
        for _ in range(3):
            while reader.read():
                pass
            passed[0] += 60
        asked.clear()
        with counted(it) as work:
            assert not reader.read()
        return work.steps, len(asked)

    few, many = idle(FEW), idle(300)
    assert few[1] == many[1]
    assert many[0] <= 1.5 * few[0]
