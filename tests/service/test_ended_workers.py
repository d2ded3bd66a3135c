"""Workers that die of an envelope, in one process. Only this envelope is set aside, in any order and beside other exits."""

from itertools import permutations

import pytest
from harness.service_under_test import P0, Service

from notification_service.supervision.exit_rules import is_own_doing
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.suspects import EXITS_OF_ONE, Suspects
from notification_service.wiring.handlers import WatchedHandler
from notification_service.worker.worker import WorkerInFlight

SIGKILL, SIGSEGV = -9, -11
KILLER = "uow-1#A#2"


class Exited(KeyboardInterrupt):
    """The exit of the process. No handler of errors catches it."""

    def __init__(self, code, held):
        self.code = code
        self.held = held


class Deadly:
    """A handler that ends its worker on one envelope, once with each of these codes. Otherwise it calls the inner handler."""

    def __init__(self, handler, memory, codes):
        self._handler = handler
        self._memory = memory
        self._codes = list(codes)
        self.exits = 0

    def handle(self, envelope, *arguments):
        if envelope.envelope_id == KILLER and self._codes:
            self.exits += 1
            raise Exited(self._codes.pop(0), self._memory.turn.find())
        return self._handler.handle(envelope, *arguments)


class Workers:
    """A service with a supervisor that restarts its worker and counts the exits."""

    def __init__(self, directory, storage, codes=(SIGSEGV,) * 100, **plan):
        self.service = Service(directory, storage=storage, acknowledge_handled=storage == "none", **plan)
        self.suspects = Suspects(directory)
        self.memory = InFlightMemory()
        self.deadly = Deadly(self.service.handler, self.memory, codes)
        self.begin()

    def live(self, cycles=100):
        """Run cycles until nothing moves any more."""
        quiet = 0
        for _ in range(cycles):
            try:
                self.hand.look()
                quiet = 0 if self.service.cycle.run_once() else quiet + 1
                self.hand.forget_those_that(self.service.cycle.partitions.is_published)
            except Exited as ended:
                if is_own_doing(ended.code):
                    self.suspects.count(ended.held, f"ended with {ended.code}")
                self.begin()
            if quiet == 2:
                return
        raise AssertionError("it does not come to rest")

    def pass_time(self, milliseconds):
        self.service.clock.advance(milliseconds)
        self.live()

    def begin(self):
        self.service.kill()
        self.memory.clear()
        self.hand = WorkerInFlight(self.memory, self.suspects)
        self.service.handler = WatchedHandler(self.deadly, self.hand, 3_000, lambda: 0, lambda *_: None)
        self.service.start()


@pytest.mark.parametrize("storage", ["embedded", "none"])
@pytest.mark.parametrize("order", [*permutations((1, 2, 3))])
@pytest.mark.parametrize("killed", [0, 2], ids=["by itself", "also from outside"])
def test_in_whatever_order_it_comes_it_alone_is_set_aside(tmp_path, storage, order, killed):
    codes = (SIGSEGV, *[SIGKILL] * killed, *[SIGSEGV] * 100)
    workers = Workers(tmp_path, storage, codes, batch_size=2)
    for unit in ("uow-0", "uow-1", "uow-2"):
        workers.service.tell(unit, *order)
    workers.live()
    workers.pass_time(60_000)
    service = workers.service
    assert [each.reason for each in service.dead] == ["ended-its-worker"]
    assert [service.sequences(f"uow-{number}") for number in range(3)] == [[1, 2, 3], [1, 3], [1, 2, 3]]
    assert not any(each.is_possible_duplicate or each.is_late or each.incomplete for each in service.notifications)
    assert workers.deadly.exits == EXITS_OF_ONE + killed
    workers.begin()
    for _ in range(3):
        workers.pass_time(60_000)
    assert len(service.dead) == 1, "also if it is read again"
    assert workers.suspects.find_all() == {}
    assert service.stored_positions[P0.number] == service.input_size()


@pytest.mark.parametrize("storage", ["embedded", "none"])
def test_so_it_is_at_its_deadline(tmp_path, storage):
    workers = Workers(tmp_path, storage)
    workers.service.tell("uow-1", 2, 3)
    workers.service.tell("uow-2", 1)
    workers.live()
    for _ in range(6):  # With storage none a unit begins to wait again after each exit.
        workers.pass_time(60_000)
    assert [each.reason for each in workers.service.dead] == ["ended-its-worker"]
    assert (workers.service.sequences("uow-1"), workers.service.sequences("uow-2")) == ([3], [1])
    assert workers.deadly.exits == EXITS_OF_ONE
    assert workers.suspects.find_all() == {}


@pytest.mark.parametrize("storage", ["embedded", "none"])
def test_a_worker_that_is_only_killed_from_outside_sets_nothing_aside(tmp_path, storage):
    workers = Workers(tmp_path, storage, [SIGKILL] * 10)
    workers.service.tell("uow-1", 1, 2, 3)
    workers.live()
    assert (workers.deadly.exits, workers.service.dead, workers.service.sequences("uow-1")) == (10, [], [1, 2, 3])
    assert workers.suspects.find_all() == {}
