"""The history of a service: rates over restarts, what is kept, and the estimate for a backlog."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from harness.console_stage import make_sources
from harness.service_under_test import BEGINNING, FakeClock
from harness.steady import steady

from guardian.metrics import HistogramReport
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.console import history as history_module
from notification_service.console.context import instant_shown
from notification_service.console.history import History, Minute, Sampler
from notification_service.console.overview import Adds, history_chart
from notification_service.status.delivery import ReceiverCalls
from notification_service.status.report import PartitionStatus, State, StatusReport, Units
from notification_service.status.service_report import ServiceReport, service_report
from resequencer.clock import SteadyClock, instant_text
from resequencer.storage_port import StorageUnavailable

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
TRUSTED = steady(FakeClock())


def service(at: int, records: int, *, process: int = 7, read_to: int = 0, lag: int | None = 0, slot: int = 0) -> ServiceReport:
    text = instant_text(at)
    report = StatusReport(
        State.READY,
        None,
        1,
        "x.conf",
        text,
        text,
        counts={"records": records},
        notifications={"ACCP": records // 2},
        dead_letters={"undecodable": records // 10},
        partitions=(PartitionStatus("T-0", read_to, read_to, 0, None, slot, lag),),
        units=Units(waiting=records % 7),
        worker_process_id=process,
        slot=slot,
    )
    return service_report([report], at, is_running=True)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path, TRUSTED)


def records(history: History, since: int = 0) -> list[int]:
    return [each.records for each in history.minutes(since)]


def test_what_was_done_before_the_console_looked_first_is_no_rate(history: History) -> None:
    history.add(service(BEGINNING, 1_000), BEGINNING)
    history.add(service(BEGINNING + 5_000, 1_010), BEGINNING + 5_000)
    assert records(history) == [10]


def test_the_counters_of_a_new_process_begin_at_0_and_never_make_a_rate_negative(history: History) -> None:
    history.add(service(BEGINNING, 1_000), BEGINNING)
    history.add(service(BEGINNING + 5_000, 30, process=8), BEGINNING + 5_000)
    assert records(history) == [30]


def test_minutes_are_kept_for_the_next_console_and_the_oldest_go(history: History, tmp_path: Path) -> None:
    for minute in range(5):
        history.add(service(BEGINNING + minute * MINUTE, 10 * minute), BEGINNING + minute * MINUTE)
    again = History(tmp_path, TRUSTED)
    assert [each.records for each in again.minutes(BEGINNING)] == [0, 10, 10, 10]
    later = BEGINNING + 8 * DAY
    again.add(service(later, 50), later)
    again.add(service(later + MINUTE, 60), later + MINUTE)
    assert [each.minute for each in History(tmp_path, TRUSTED).minutes(0)] == [later]


def test_a_clock_that_is_ahead_for_a_moment_deletes_nothing(tmp_path: Path) -> None:
    wall, passed = FakeClock(), FakeClock()
    clock = SteadyClock(wall.now, passed.now)
    history = History(tmp_path, clock)

    def look(at: int = 0, ahead_ms: int = 0) -> None:
        wall.advance(MINUTE + ahead_ms)
        passed.advance(MINUTE)
        history.add(service(wall.now(), at), wall.now())
        wall.advance(-ahead_ms)

    for at in range(90):
        look(at)
    assert clock.is_trusted
    look(90, 8 * DAY)
    look(91)
    look(92)
    kept = [each.minute for each in History(tmp_path, clock).minutes(0)]
    assert len(kept) == 92
    assert min(kept) == BEGINNING - BEGINNING % MINUTE + MINUTE
    wall.advance(8 * DAY)
    passed.advance(8 * DAY)
    look(93)
    look(94)
    assert len(History(tmp_path, clock).minutes(0)) < 4, "the clock is right, and that was long ago"


@pytest.mark.slow
def test_a_file_that_is_locked_is_kept(history: History, tmp_path: Path) -> None:
    for minute in range(3):
        history.add(service(BEGINNING + minute * MINUTE, minute), BEGINNING + minute * MINUTE)
    with closing(sqlite3.connect(tmp_path / "console-history.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert History(tmp_path, TRUSTED).minutes(0) == []
    assert len(History(tmp_path, TRUSTED).minutes(0)) == 2


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(200)])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "console-history.db").write_bytes(content)
    history = History(tmp_path, TRUSTED)
    assert history.minutes(0) == []
    for minute in range(3):
        history.add(service(BEGINNING + minute * MINUTE, minute), BEGINNING + minute * MINUTE)
    assert len(History(tmp_path, TRUSTED).minutes(BEGINNING)) == 2


def test_a_console_that_was_killed_while_it_made_the_file_leaves_one_to_go_on_with(history: History, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "console-history.db")) as file:
        file.execute("PRAGMA user_version = 0")  # The table was there before the version.
    for minute in range(3):
        history.add(service(BEGINNING + minute * MINUTE, minute), BEGINNING + minute * MINUTE)
    assert len(History(tmp_path, TRUSTED).minutes(BEGINNING)) == 2


def test_a_file_that_cannot_be_written_leaves_the_history_in_memory_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(tmp_path / "nowhere", TRUSTED)
    for minute in range(4):
        history.add(service(BEGINNING + minute * MINUTE, 10 * minute), BEGINNING + minute * MINUTE)
    assert records(history, BEGINNING) == [0, 10, 10, 10]
    assert len([each for each in caplog.messages if "in memory only" in each]) == 1


def test_a_minute_has_the_largest_lag_that_was_known_and_none_if_none_was(history: History, tmp_path: Path) -> None:
    for minute, lag in enumerate((None, 7, None, 3, None)):
        at = BEGINNING + minute * MINUTE // 2
        history.add(service(at, 0, lag=lag), at)
    assert [each.lag for each in history.minutes(BEGINNING)] == [7, 3, None]
    assert [each.lag for each in History(tmp_path, TRUSTED).minutes(BEGINNING)] == [7, 3]
    history.add(service(BEGINNING + 3 * MINUTE, 0), BEGINNING + 3 * MINUTE)
    assert [each.lag for each in History(tmp_path, TRUSTED).minutes(BEGINNING)] == [7, 3, None]


def test_the_estimate_for_a_backlog_is_what_is_unread_by_what_is_read_in_a_second(history: History) -> None:
    assert history.speed(100) is None
    history.add(service(BEGINNING, 0, read_to=1_000, lag=900), BEGINNING)
    history.add(service(BEGINNING + 10_000, 100, read_to=1_100, lag=800), BEGINNING + 10_000)
    speed = history.speed(800)
    assert speed is not None
    assert (speed.records_per_second, speed.notifications_per_second, speed.backlog_seconds) == (10, 5, 80)
    still = history.speed(0)
    assert still is not None
    assert still.backlog_seconds is None


def test_a_backlog_that_nothing_reads_has_no_estimate(history: History) -> None:
    for seconds in (0, 5):
        history.add(service(BEGINNING + seconds * 1_000, 0, read_to=5, lag=9), BEGINNING + seconds * 1_000)
    speed = history.speed(9)
    assert speed is not None
    assert speed.backlog_seconds is None


def test_what_receivers_accepted_is_added_up_over_restarts_of_their_workers(history: History, tmp_path: Path) -> None:
    none = HistogramReport((), (), 0.0)
    for number, accepted in enumerate((100, 103, 2, 7)):
        calls = [ReceiverCalls("bank", {"2xx": accepted, "5xx": 9}, none, slot) for slot in range(2)]
        history.add(service(BEGINNING + number * 1_000, 0), BEGINNING + number * 1_000, calls)
    assert [each.delivered for each in history.minutes(0)] == [2 * (3 + 2 + 5)]
    history.add(service(BEGINNING + MINUTE, 0), BEGINNING + MINUTE)
    assert [each.delivered for each in History(tmp_path, TRUSTED).minutes(0)] == [20]


def test_the_minutes_of_the_version_before_are_kept(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "console-history.db")) as connection, connection:
        columns = "records, notifications, dead_letters, waiting, lag"
        typed = ", ".join(f"{each} INTEGER NOT NULL" for each in columns.split(", "))
        connection.execute(f"CREATE TABLE minutes (minute INTEGER PRIMARY KEY, {typed})")
        connection.execute("INSERT INTO minutes VALUES (?, 1, 2, 3, 4, 5)", (BEGINNING,))
        connection.execute("PRAGMA user_version = 1")
    assert History(tmp_path, TRUSTED).minutes(0) == [Minute(BEGINNING, 1, 2, 3, 4, 5, 0)]


def test_dead_letters_are_counted_again_as_soon_as_the_workers_report_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, counted = [0.0], list[int]()
    monkeypatch.setattr(history_module, "monotonic", lambda: passed[0])
    monkeypatch.setattr(Sampler, "count_proposals", lambda _: None)
    monkeypatch.setattr(Sampler, "look_at_archive", lambda _: None)
    reports = [service(BEGINNING, 0), service(BEGINNING, 0), service(BEGINNING, 10), service(BEGINNING, 10)]
    sources = make_sources(tmp_path)._replace(find_report=lambda: reports[0])

    def unreadable(asked_for: AskedFor, sign: Sign) -> DeadLetterStore:
        counted.append(int(passed[0]))
        raise StorageUnavailable

    sampler = Sampler(sources._replace(open_dead_letters=unreadable), History(tmp_path, TRUSTED))
    for _ in range(4):
        sampler.sample()
        passed[0] += 5
        reports.append(reports.pop(0))
    assert counted == [0, 10], "not at 5 and 15: nothing is new"


NOW = BEGINNING - BEGINNING % HOUR + HOUR - 1


def test_the_chart_of_an_hour_has_a_bar_for_each_minute_and_a_scale_that_ends_with_a_round_number() -> None:
    minutes = [Minute(NOW + 1 - (3 - n) * MINUTE, records=records) for n, records in enumerate((0, 60, 119))]
    chart = history_chart("Records", minutes, "records", Adds.RATE, 1, NOW)
    assert [(bar.value, bar.height, bar.y, bar.text) for bar in chart.bars[:2]] == [(0, 0, 90, "0.0"), (1, 45, 45, "1.0")]
    assert (chart.top, chart.top_text, chart.middle, chart.highest) == (2, "2", "1", "2.0")
    assert chart.bars[-1].x == 708, "the last minute is at the right edge"
    assert chart.path.startswith("M696 90V45h11V90zM708 90V")
    shown = f">{instant_shown(NOW + 1 - 3 * MINUTE)}: 0.0</title>"
    assert chart.tooltips.startswith(f'<rect x="684" width="11" height="90"><title data-at="{NOW + 1 - 3 * MINUTE}"{shown}')
    assert history_chart("Records", [], "records", Adds.RATE, 1, NOW).bars == ()


def test_the_chart_of_a_day_adds_up_what_is_counted_and_shows_the_highest_of_what_is_measured() -> None:
    lags = (7, 2_370, None)
    minutes = [Minute(NOW + 1 - (n + 1) * MINUTE, dead_letters=2, lag=lag) for n, lag in enumerate(lags)]
    (counted,) = history_chart("Dead letters", minutes, "dead_letters", Adds.COUNT, 24, NOW).bars
    assert (counted.text, counted.at) == ("6", NOW + 1 - 20 * MINUTE)
    chart = history_chart("Lag", minutes, "lag", Adds.HIGHEST, 24, NOW)
    assert ([each.text for each in chart.bars], chart.top_text, chart.middle) == (["2,370"], "5,000", "2,500")
    unknown = history_chart("Lag", minutes[2:], "lag", Adds.HIGHEST, 24, NOW)
    assert unknown.bars == (), "what is not known is no 0"


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (0.003, 0.005), (0.1, 0.1), (1, 1), (1.2, 2), (49, 50), (51, 100), (1e6, 1e6)]
)
def test_a_scale_ends_with_1_2_or_5_times_a_power_of_ten(highest: float, top: float) -> None:
    assert history_chart("", [Minute(NOW, lag=highest)], "lag", Adds.HIGHEST, 1, NOW).top == pytest.approx(top)  # type: ignore[arg-type]
