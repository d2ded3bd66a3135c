"""`verify --follow`: compares while the simulation is written and the service works."""

import fcntl
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

import notification_service.simulator.verify.following
from guardian.ports import TransportRefused
from notification_service.connectors.files.rotated_names import rotated_path
from notification_service.simulator.expectation import ExpectedGarbage
from notification_service.simulator.generate.plan import Bursts, Keys, Plan
from notification_service.simulator.generate.simulation import UNITS_AT_ONCE, Pacer, simulate
from notification_service.simulator.verify.following import Compared, Following, Look, Watch, keep_watch
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation, Verdict, render_text
from notification_service.simulator.verify.verification import verify_files

SEQUENCE = Rules("SEQUENCE")
ROUGH: dict[str, Any] = {"losses": 0.05, "late": 0.05, "garbage": 0.02, "duplicates": 0.05, "conflicts": 0.05}


class Followed:
    """A faultless run that is written step by step, and the reader that follows it."""

    def __init__(self, directory: Path, run: Any, output: Any) -> None:
        directory.mkdir()
        self.files = Compared(directory / "expected.jsonl", directory / "notifications.jsonl", directory / "dead-letters.jsonl")
        self.expected, self.notifications, self.dead_letters = run.expected_lines, output.notifications, output.dead_letters
        self.run = run
        self.following = Following(SEQUENCE, self.files)

    def look(self) -> Look:
        return self.following.look()

    def write(self, what: str, lines: list[bytes]) -> None:
        with getattr(self.files, what).open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    def write_all(self) -> None:
        for what in Compared._fields:
            self.write(what, getattr(self, what))

    def found(self) -> dict[Deviation, int]:
        return found(self.following.verdict())


def found(verdict: Verdict) -> dict[Deviation, int]:
    return {deviation: count for deviation, count in verdict.counts if count}


@pytest.fixture
def followed(known_run: Callable, faultless: Callable, tmp_path: Path) -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def followed(directory: str = "followed", **fields: Any) -> Followed:
        simulated = known_run(**(ROUGH | fields))
        made.append(Followed(tmp_path / directory, simulated, faultless(simulated, SEQUENCE)))
        return made[-1]

    yield followed
    for each in made:
        each.following.close()


def test_what_is_all_there_is_complete_at_the_first_look(followed: Callable):
    whole = followed()
    whole.write_all()
    look = whole.look()
    assert look.is_complete
    assert look.units == 60
    assert (look.outstanding, look.outstanding_dead_letters, look.deviations) == (0, 0, 0)
    assert whole.following.verdict().is_good


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_first_it_is_complete_when_all_is_there_and_not_before(followed: Callable, seed: int):
    part, rng = followed(), Random(seed)
    rest = {what: list(getattr(part, what)) for what in Compared._fields}
    # As while a simulation is written: output that is not explained yet is no deviation.
    part.files.expected.touch()
    with part.files.expected.open("rb") as simulation:
        fcntl.flock(simulation, fcntl.LOCK_SH)
        while any(rest.values()):
            what = rng.choice([what for what, lines in rest.items() if lines])
            size = rng.randint(1, 120)
            part.write(what, rest[what][:size])
            del rest[what][:size]
            look = part.look()
            assert look.has_moved
            assert not look.is_complete
            assert look.deviations == 0
    last = part.look()
    assert last.is_complete
    assert not last.has_moved
    assert found(part.following.verdict()) == {}


def test_expectations_of_another_run_are_called_so(followed: Callable):
    one, other = followed(units=20, garbage=0), followed("other", units=20, garbage=0, seed=4711)
    one.write("expected", other.expected)
    one.write("notifications", one.notifications)
    assert one.look().deviations
    verdict = one.following.verdict()
    assert (verdict.found_units, verdict.other_units) == (0, 20)
    assert "The expectations are of another run" in render_text(verdict)


@pytest.mark.parametrize("seed", range(4))
def test_outputs_that_are_rotated_meanwhile_are_followed(followed: Callable, seed: int):
    part, rng = followed(), Random(seed)
    part.write("expected", part.expected)
    for what in ("notifications", "dead_letters"):
        path, rest, number = getattr(part.files, what), list(getattr(part, what)), 0
        while rest:
            for _ in range(rng.randint(0, 3)):
                part.write(what, rest[:20])
                del rest[:20]
                number += 1
                path.rename(rotated_path(path, number))
                path.touch()
            assert part.look().deviations == 0
    assert part.look().is_complete


def test_what_is_followed_is_judged_as_what_is_verified(followed: Callable):
    whole = followed()
    whole.write_all()
    whole.look()
    assert whole.following.verdict() == verify_files(SEQUENCE, *whole.files)


def test_before_anything_is_expected_nothing_is_complete(followed: Callable):
    nothing = followed()
    assert not nothing.look().is_complete
    nothing.following.give_up()
    assert not nothing.following.verdict().is_good


@pytest.mark.parametrize(
    ("change", "deviation"),
    [
        (lambda each: each.notifications.append(each.notifications[3]), Deviation.DOUBLED),
        (lambda each: each.notifications.append(each.notifications[3].replace(b"sim-7-", b"sim-8-")), Deviation.UNEXPECTED),
        (lambda each: each.notifications.append(b"torn"), Deviation.UNREADABLE),
        (lambda each: each.notifications.append(each.notifications.pop(-2)), Deviation.OUT_OF_ORDER),
        (lambda each: each.dead_letters.append(each.dead_letters[0]), Deviation.DEAD_LETTER_DOUBLED),
        (lambda each: each.dead_letters.append(each.dead_letters[0].replace(b"@", b"@99")), Deviation.DEAD_LETTER_UNEXPECTED),
        (lambda each: each.dead_letters.append(b"torn"), Deviation.UNREADABLE),
    ],
    ids=lambda each: each.name if isinstance(each, Deviation) else "",
)
def test_a_deviation_is_reported_at_once(followed: Callable, change: Callable[[Followed], object], deviation: Deviation):
    changed = followed(losses=0, late=0)
    change(changed)
    changed.write_all()
    assert changed.look().deviations == 1
    assert changed.found() == {deviation: 1}


def test_what_comes_again_after_all_of_its_unit_came_is_doubled_unless_it_says_so(followed: Callable):
    whole = followed()
    whole.write_all()
    assert whole.look().is_complete
    again = whole.notifications[5]
    whole.write("notifications", [again.replace(b'"headers":{', b'"headers":{"possible-duplicate":"true",')])
    assert whole.look().deviations == 0
    whole.write("notifications", [again])
    assert whole.look().deviations == 1
    assert whole.found() == {Deviation.DOUBLED: 1}


def test_what_does_not_come_is_outstanding_and_in_the_end_lost(followed: Callable):
    part = followed()
    missing, letter = part.notifications.pop(), part.dead_letters.pop()
    part.write_all()
    look = part.look()
    assert (look.outstanding, look.outstanding_dead_letters, look.deviations, look.is_complete) == (1, 1, 0, False)
    part.following.give_up()
    assert part.found() == {Deviation.LOST: 1, Deviation.DEAD_LETTER_MISSING: 1}
    late = followed("late")
    late.notifications.pop(), late.dead_letters.pop()
    late.write_all()
    assert not late.look().is_complete
    late.write("notifications", [missing])
    late.write("dead_letters", [letter])
    assert late.look().is_complete


def test_a_unit_that_is_never_heard_of_is_lost(followed: Callable):
    part = followed()
    part.notifications.clear()
    part.write_all()
    part.look()
    part.following.give_up()
    assert part.found() == {Deviation.LOST: part.run.summary.notifications}


def test_as_long_as_a_simulation_writes_nothing_is_complete(followed: Callable):
    whole = followed()
    whole.write_all()
    with whole.files.expected.open("rb") as simulation:
        fcntl.flock(simulation, fcntl.LOCK_SH)
        assert not whole.look().is_complete
    assert whole.look().is_complete


def test_the_simulation_holds_its_lock_as_long_as_it_writes(tmp_path: Path):
    following = Following(SEQUENCE, Compared(tmp_path / "e", tmp_path / "n", tmp_path / "d"))
    looks: list[Look] = []
    plan = Plan(units=5, seed=3, losses=0, late=1)
    simulate(plan, tmp_path / "in", tmp_path / "e", lambda *_: None, lambda ms: looks.append(following.look()))
    with closing(following):
        assert not following.look().is_complete
    assert [each.outstanding for each in looks] == [5]


def test_a_damaged_expectation_is_refused(followed: Callable):
    damaged = followed()
    damaged.write("expected", [damaged.expected[0], b"{}"])
    with pytest.raises(TransportRefused, match="line 2 is damaged"):
        damaged.look()


def test_no_more_expectations_are_kept_than_needed(followed: Callable, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notification_service.simulator.verify.following, "_OPEN_UNITS", 10)
    monkeypatch.setattr(notification_service.simulator.verify.following, "_AT_ONCE", 5)
    part = followed(units=200, garbage=0, conflicts=0)
    part.write("expected", part.expected)
    assert 10 <= part.look().outstanding < 15
    part.write("notifications", part.notifications)
    while (look := part.look()).is_behind:
        assert look.outstanding < 15 + UNITS_AT_ONCE
        assert not look.is_complete
    assert look.is_complete
    unheard = followed("unheard", units=200, garbage=0, conflicts=0)
    unheard.write("expected", unheard.expected)
    unheard.look()
    unheard.following.give_up()
    assert unheard.found() == {Deviation.LOST: unheard.run.summary.notifications}


@pytest.mark.slow
def test_memory_does_not_hold_what_is_complete(followed: Callable):
    whole = followed(units=300)
    whole.write_all()
    tracemalloc.start()
    try:
        assert whole.look().is_complete
        whole.look()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    letters = sum(isinstance(each, ExpectedGarbage) for each in whole.run.expected)
    assert kept < 300 * 250 + letters * 500 + 200_000


class Time:
    def __init__(self) -> None:
        self.at = 0
        self.events: dict[int, Callable[[], object]] = {}

    def now(self) -> int:
        return self.at

    def pause(self, milliseconds: int) -> None:
        self.at += milliseconds
        for at in [at for at in self.events if at <= self.at]:
            self.events.pop(at)()


def watch(each: Followed, time: Time) -> tuple[Verdict, list[Look]]:
    looks: list[Look] = []
    return keep_watch(each.following, Watch(2_000, 60_000), time.now, time.pause, looks.append), looks


def test_it_ends_when_everything_has_come(followed: Callable):
    part, time = followed(), Time()
    part.write("expected", part.expected)
    time.events = {
        50_000: lambda: part.write("notifications", part.notifications[:100]),
        100_000: lambda: part.write("notifications", part.notifications[100:]),
        150_000: lambda: part.write("dead_letters", part.dead_letters),
    }
    verdict, looks = watch(part, time)
    assert verdict.is_good
    assert time.at == 150_000
    assert len(looks) == 76


def test_a_verification_that_is_behind_does_not_pause(followed: Callable, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notification_service.simulator.verify.following, "_AT_ONCE", 2)
    whole, time = followed(), Time()
    whole.write_all()
    verdict, looks = watch(whole, time)
    assert verdict.is_good
    assert len(looks) > 5
    assert time.at == 0


def test_it_ends_at_the_first_deviation(followed: Callable):
    part, time = followed(), Time()
    part.write_all()
    part.notifications.clear()
    with part.files.expected.open("rb") as simulation:
        fcntl.flock(simulation, fcntl.LOCK_SH)
        time.events = {10_000: lambda: part.write("notifications", [b"torn"])}
        verdict, looks = watch(part, time)
    assert time.at == 10_000
    assert [each.deviations for each in looks] == [0] * 5 + [1]
    assert not verdict.is_good


@pytest.mark.slow
def test_it_ends_when_patience_does_and_tells_what_is_lost(followed: Callable):
    part, time = followed(), Time()
    last = part.notifications.pop()
    part.notifications.pop()
    time.events = {30_000: part.write_all, 80_000: lambda: part.write("notifications", [last])}
    verdict, _ = watch(part, time)
    assert time.at == 140_000
    assert found(verdict) == {Deviation.LOST: 1}


@pytest.mark.slow
def test_the_real_service_is_followed_while_it_works(served: Callable):
    """The reader looks between each two turns of the service, and reports no false deviation."""
    service = served()
    following = Following(SEQUENCE, Compared(service.expected, service.notifications, service.dead_letters))
    looks: list[Look] = []

    def pause(milliseconds: int) -> None:
        service.pause(milliseconds)
        looks.append(following.look())

    with closing(following):
        plan = Plan(40, 9, rate=100.0, bursts=Bursts(200, 25_000), keys=Keys.ZIPF, conflicts=0.02, garbage=0.02, late=0.02)
        simulate(plan, service.service.directory / "in", service.expected, lambda *_: None, pause, Pacer(service.now, pause))
        assert not any(each.is_complete or each.deviations for each in looks)
        assert len({each.units for each in looks}) > 10
        pause(60_000)
        assert looks[-1].is_complete
        assert following.verdict() == service.verdict()
