import pytest

from notification_service.simulator.generate.simulation import Pacer, Timetable


class Time:
    """A clock that advances only in pauses, `slowness` times as much as requested."""

    def __init__(self, slowness: float = 1) -> None:
        self.at = 1_000_000
        self.slowness = slowness
        self.pauses: list[int] = []

    def now(self) -> int:
        return self.at

    def pause(self, milliseconds: int) -> None:
        self.pauses.append(milliseconds)
        self.at += int(milliseconds * self.slowness)


def write(time: Time, timetable: Timetable, lines: int) -> tuple[Pacer, list[int], int]:
    """Return when each line was written, relative to the first, and the number of flushes."""
    pacer, written, flushes = Pacer(time.now, time.pause), [], 0

    def flush() -> None:
        nonlocal flushes
        flushes += 1

    for _ in range(lines):
        pacer.await_line(timetable.due_ms, flush)
        timetable.add_line()
        written.append(time.at - 1_000_000)
    return pacer, written, flushes


@pytest.mark.parametrize("rate", [1, 30, 500, 30_000])
def test_a_rate_is_kept(rate: float):
    pacer, written, _ = write(Time(), Timetable(rate), max(100, int(rate)))
    assert pacer.rate == pytest.approx(rate, rel=0.05)
    assert written[0] == 0
    late = [at - number * 1_000 / rate for number, at in enumerate(written)]
    assert -1 <= min(late) <= max(late) <= 20


def test_before_every_pause_everything_is_flushed_and_no_pause_is_too_short_to_be_worth_it():
    time = Time()
    _, _, flushes = write(time, Timetable(5_000), 1_000)
    assert flushes == len(time.pauses) <= 10
    assert min(time.pauses) == 20


def test_without_a_rate_nothing_is_waited_for():
    time = Time()
    pacer, written, flushes = write(time, Timetable(None), 1_000)
    assert (time.pauses, flushes, written[-1]) == ([], 0, 0)
    assert pacer.lines == 1_000
    assert pacer.rate == 0


def test_pauses_that_last_longer_are_made_up_for():
    pacer, _, _ = write(Time(slowness=3), Timetable(500), 5_000)
    assert pacer.rate == pytest.approx(500, rel=0.05)


def test_after_a_long_sleep_the_lines_that_were_missed_do_not_come_all_at_once():
    time, timetable = Time(), Timetable(100)
    pacer = Pacer(time.now, time.pause)
    written = []
    for number in range(300):
        time.at += 3_600_000 * (number == 100)
        pacer.await_line(timetable.due_ms, lambda: None)
        timetable.add_line()
        written.append(time.at)
    assert written[200] - written[100] == pytest.approx(1_000, abs=40)


def test_silence_is_kept_and_counted():
    time, timetable = Time(), Timetable(100)
    _, first, _ = write(time, timetable, 10)
    assert timetable.due_ms == 100
    timetable.add_silence(30_000)
    assert timetable.due_ms == 30_100
    assert first[-1] <= 110
