"""A clock that jumps is not believed at once, and what cannot be undone waits until it has agreed for an hour."""

import msgspec
import pytest

from resequencer.clock import SETTLED_MS, TRUSTED_MS, Belief, SteadyClock, Unchanged

BEGIN = 1_700_000_000_000
YEAR = 365 * 86_400_000
SECOND, HOUR = 1_000, 3_600_000


class Machine:
    """A machine that was started 5 s ago. `wall` is its clock; both go on by `pass_by`."""

    def __init__(self) -> None:
        self.wall, self.passed = BEGIN, 5_000
        self.kept: Belief | None = None

    def clock(self, *, boot: str = "b1") -> SteadyClock:
        """Return the clock of a process that begins now, with what the one before knew."""
        return SteadyClock(lambda: self.wall, lambda: self.passed, boot, known=self.kept, keep=self._keep)

    def pass_by(self, milliseconds: int, clock: SteadyClock | None = None, look_ms: int = SECOND) -> None:
        """Let time pass, with a look at the clock now and then."""
        for _ in range(0, milliseconds, look_ms):
            self.wall += look_ms
            self.passed += look_ms
            if clock is not None:
                clock.now()

    def restart(self) -> None:
        self.passed = 5_000

    def _keep(self, belief: Belief) -> None:
        self.kept = belief


@pytest.fixture
def machine() -> Machine:
    return Machine()


def trusted(machine: Machine) -> SteadyClock:
    clock = machine.clock()
    machine.pass_by(2 * HOUR, clock, 60_000)
    assert clock.is_trusted
    return clock


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 5 * SECOND])
def test_a_clock_that_is_wrong_for_ten_seconds_moves_nothing(machine: Machine, jump: int) -> None:
    clock = trusted(machine)
    before = clock.now()
    machine.wall += jump
    machine.pass_by(10 * SECOND, clock)
    assert clock.now() == before + 10 * SECOND
    machine.wall -= jump
    machine.pass_by(10 * SECOND, clock)
    assert clock.now() == machine.wall


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_another_process_on_the_same_run_of_the_machine_is_not_misled_either(machine: Machine, jump: int) -> None:
    trusted(machine)
    right, machine.wall = machine.wall, machine.wall + jump
    assert machine.clock().now() == right


def test_a_clock_that_was_set_forward_is_believed_after_a_minute_and_trusted_after_an_hour(machine: Machine) -> None:
    clock = trusted(machine)
    machine.wall += HOUR
    machine.pass_by(SETTLED_MS, clock)
    assert clock.now() == machine.wall - HOUR
    machine.pass_by(2 * SECOND, clock)
    assert clock.now() == machine.wall
    machine.pass_by(TRUSTED_MS - 10 * SECOND, clock)
    assert not clock.is_trusted
    machine.pass_by(10 * SECOND, clock)
    assert clock.is_trusted


def test_a_clock_that_was_set_back_is_believed_after_an_hour(machine: Machine) -> None:
    """Before, what is written would be older than what was written before."""
    clock = trusted(machine)
    machine.wall -= 2 * HOUR
    machine.pass_by(TRUSTED_MS - 10 * SECOND, clock, 10 * SECOND)
    assert clock.now() == machine.wall + 2 * HOUR
    machine.pass_by(20 * SECOND, clock, 10 * SECOND)
    assert clock.now() == machine.wall


def test_a_clock_that_is_not_settled_is_corrected_at_once(machine: Machine) -> None:
    machine.wall = BEGIN - YEAR
    clock = machine.clock()
    machine.pass_by(10 * SECOND, clock)
    machine.wall += YEAR
    assert clock.now() == machine.wall


def test_small_steps_are_followed(machine: Machine) -> None:
    clock = trusted(machine)
    for _ in range(10):
        machine.wall += 900
        assert clock.now() == machine.wall
    assert clock.is_trusted


def test_after_a_start_of_the_machine_time_does_not_begin_before_what_was_trusted(machine: Machine) -> None:
    clock = trusted(machine)
    last = clock.now()
    machine.restart()
    machine.wall = BEGIN - YEAR
    again = machine.clock(boot="b2")
    assert last - HOUR <= again.now() <= last
    assert not again.is_trusted
    machine.wall = last + 60_000
    assert again.now() == machine.wall


def test_the_hour_goes_on_over_restarts_of_a_process_and_not_over_one_of_the_machine(machine: Machine) -> None:
    for _ in range(7):
        machine.pass_by(600 * SECOND, machine.clock(), 60_000)
    assert machine.clock().is_trusted
    assert not machine.clock(boot="b2").is_trusted


@pytest.mark.parametrize(("set_ms", "lives"), [(-YEAR, 2), (YEAR, 6)])
def test_a_clock_that_was_set_is_believed_also_by_processes_that_live_for_less_than_that_takes(
    machine: Machine, set_ms: int, lives: int
) -> None:
    trusted(machine)
    machine.wall += set_ms
    life_ms = 50 * 60 * SECOND if set_ms < 0 else 15 * SECOND
    for _ in range(lives):
        machine.pass_by(life_ms, machine.clock())
    assert machine.clock().now() == machine.wall


def test_each_new_offset_of_a_clock_that_disagrees_is_believed_by_its_own_time(machine: Machine) -> None:
    trusted(machine)
    for _ in range(6):
        machine.wall += YEAR
        machine.pass_by(15 * SECOND, machine.clock())
    assert machine.clock().now() < machine.wall - YEAR


def test_time_in_which_no_process_looked_does_not_make_a_wrong_clock_believed(machine: Machine) -> None:
    trusted(machine)
    machine.wall += YEAR
    machine.pass_by(10 * SECOND, machine.clock())
    machine.pass_by(HOUR)
    again = machine.clock()
    machine.pass_by(10 * SECOND, again)
    assert again.now() == machine.wall - YEAR


def test_what_an_earlier_release_kept_of_a_clock_is_read() -> None:
    kept = b'{"boot":"b1","offset":1,"seen":2,"agreed_since":3,"is_settled":true,"floor":4}'
    assert msgspec.json.decode(kept, type=Belief) == Belief("b1", 1, 2, 3, is_settled=True, floor=4)


def test_after_a_jump_ahead_time_counts_from_the_moment_at_which_it_is_trusted(machine: Machine) -> None:
    """What was written before, by a clock that was behind, would be over at once otherwise."""
    clock = trusted(machine)
    assert clock.counts_from == 0
    machine.pass_by(48 * HOUR, clock, 60_000)
    assert clock.counts_from == 0
    machine.wall += YEAR
    machine.pass_by(HOUR // 2, clock, 60_000)
    assert clock.counts_from is None
    machine.pass_by(HOUR, clock, 60_000)
    counts_from = clock.counts_from or 0
    assert machine.wall - HOUR < counts_from <= machine.wall - HOUR // 4
    again = machine.clock()
    machine.pass_by(48 * HOUR, again, 60_000)
    assert again.counts_from == counts_from


def test_a_jump_ahead_between_two_processes_is_noticed_by_what_was_trusted_last(machine: Machine) -> None:
    trusted(machine)
    machine.wall += YEAR
    machine.restart()
    clock = machine.clock(boot="b2")
    machine.pass_by(2 * HOUR, clock, 60_000)
    assert (clock.counts_from or 0) > machine.wall - 2 * HOUR


def test_each_disagreement_begins_the_hour_anew(machine: Machine) -> None:
    clock = trusted(machine)
    machine.wall += YEAR
    clock.now()
    machine.wall -= YEAR
    machine.pass_by(TRUSTED_MS - SECOND, clock)
    assert not clock.is_trusted
    machine.pass_by(2 * SECOND, clock)
    assert clock.is_trusted


def test_clocks_that_drift_apart_between_two_looks_agree(machine: Machine) -> None:
    clock = trusted(machine)
    machine.pass_by(HOUR)
    machine.wall += 3 * SECOND
    assert clock.now() == machine.wall
    assert clock.is_trusted


@pytest.mark.parametrize("is_late_after", [True, False])
def test_an_answer_that_took_long_is_no_disagreement(machine: Machine, is_late_after: bool) -> None:
    """A server's clock was read at any moment of the question."""
    clock = trusted(machine)

    def ask() -> int:
        machine.pass_by(20 * SECOND if is_late_after else 0)
        answer = machine.wall
        machine.pass_by(0 if is_late_after else 20 * SECOND)
        return answer

    for _ in range(10):
        assert abs(clock.read(ask) - machine.wall) <= 20 * SECOND
    assert clock.is_trusted
    machine.pass_by(SECOND, clock)
    assert clock.now() == machine.wall


def test_how_long_a_fact_is_unchanged_is_counted_from_the_first_look() -> None:
    now = 0
    unchanged = Unchanged(lambda: now)
    assert unchanged.look({"a": 1, "b": 1}) == {"a": 0, "b": 0}
    now = 10
    assert unchanged.look({"a": 1, "b": 2}) == {"a": 10, "b": 0}
    now = 15
    assert unchanged.look({"b": 2}) == {"b": 5}
    assert unchanged.look({"a": 1}) == {"a": 0}, "it was away in between"
    now = 20
    assert (unchanged.for_ms("a", 1), unchanged.for_ms("a", 2)) == (5, 0)
