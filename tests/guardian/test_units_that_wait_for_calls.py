"""Units whose handler is called beside the worker's thread: what their guardian knows of them, until they get their answers."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from harness.actors.asking import FAR, P0, Asked
from harness.driving import NoChance, decoder
from msgspec.structs import replace

from guardian.actor_gateway import ActorGateway, Decided
from guardian.calls import Calls, Ended
from guardian.unit_registry import UnitRegistrySettings
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.batch import UnitKey
from resequencer.call import Call
from resequencer.errors import DependencyUnavailable, PermanentError
from resequencer.handler import Handled
from resequencer.notification import Notification
from resequencer.record import Partition
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import WaitKind
from resequencer.turn.turn import TurnContext


class Held:
    """A runner whose calls end when the test ends them. `guardian.calls.Runner`."""

    def __init__(self) -> None:
        self.started: list[Call] = []
        self.cancelled: list[Call] = []
        self.is_closed = False
        self._ended: list[Ended] = []
        self.now = 0.0

    def must_be_alone(self, call: Call) -> bool:
        del call
        return False

    def start(self, call: Call) -> None:
        self.started.append(call)

    def cancel(self, call: Call) -> None:
        self.cancelled.append(call)

    def end(self, call: Call, outcome: Handled | Exception) -> None:
        self.started.remove(call)
        self._ended.append(Ended(call, outcome, self.now))

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def ended(self) -> Sequence[Ended]:
        found, self._ended = self._ended, []
        return found

    def wait(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Calling(Asked):
    """A guardian whose handler waits."""

    def __init__(self, limit: int = 64, **registry: Any) -> None:
        super().__init__(**registry)
        self.actors.close()
        self.runner, self._limit, self._registry = Held(), limit, registry
        self.open(waits=True)

    def open(self, *, waits: bool, **settings: Any) -> None:
        """Begin again with what is stored, as the next worker does."""
        calls = Calls(self.runner, self._limit, 3_000, lambda: self.runner.now) if waits else None
        strategy = make_strategy(StrategySettings("SEQUENCE"))
        context = TurnContext(strategy, self.handler, LATEST_OBJECTS, ResequencerSettings(**settings), NoChance())
        self.actors = ActorGateway(context, decoder().decode, replace(UnitRegistrySettings(), **self._registry), calls)

    def is_behind(self, partition: Partition) -> bool:
        return self.actors.is_behind or partition in self.actors.crowded

    def cycle(self, *envelopes: DataEnvelope, after_ms: int = 0) -> Decided:
        self.now += after_ms
        arrivals: dict[UnitKey, tuple[DataEnvelope, ...]] = {}
        for each in envelopes:
            key = UnitKey(each.record.origin.partition, each.unit)
            arrivals[key] = (*arrivals.get(key, ()), each)
        answers = self.actors.take_answers()
        unknown = self.actors.prepare(self.now, tuple(dict.fromkeys((*arrivals, *answers))), FAR, FAR).unknown
        self.loaded.append(frozenset(unknown))
        snapshots = {key: self.stored[key] for key in unknown if key in self.stored}
        decided = self.actors.decide(self.now, arrivals, snapshots, {}, answers)
        for turn in decided.turns:
            self._keep(turn)
        self.actors.begin_calls()
        return decided

    def end(self, outcome: Exception | None = None) -> None:
        """End the first call with this outcome, or that of the handler."""
        call = self.runner.started[0]
        self.runner.end(call, outcome or self.handler.handle(call.envelope, call.data, call.marks, call.now))

    def answer(self, outcome: Exception | None = None) -> Decided:
        self.end(outcome)
        return self.cycle()


@pytest.fixture
def calling() -> Iterator[Callable[..., Calling]]:
    made: list[Calling] = []

    def make(**how: Any) -> Calling:
        made.append(Calling(**how))
        return made[-1]

    yield make
    for each in made:
        each.actors.close()


Make = Callable[..., Calling]


def test_after_a_takeover_the_units_that_have_waited_longest_are_called_first(calling: Make) -> None:
    service, names = calling(limit=1), ("c", "a", "b")
    for name in names:
        service.cycle(service.envelope(name, 1), after_ms=1_000)
    service.actors.close()
    service.runner = Held()
    service.open(waits=True)
    service.actors.arm(P0, [(name, service.waiting[UnitKey(P0, name)]) for name in sorted(names)])
    called = []
    for _ in names:
        service.cycle()
        called.append(service.runner.started[0].envelope.unit)
        service.answer()
    assert called == [*names]


def test_a_call_that_was_under_way_is_an_attempt_of_a_handler_that_does_not_wait(calling: Make) -> None:
    service = calling()
    service.cycle(service.envelope("u", 1), service.envelope("u", 2))
    assert service.waiting[UnitKey(P0, "u")].kind is WaitKind.CALL
    service.actors.close()
    service.open(waits=False)
    service.arm([UnitKey(P0, "u")])
    assert service.notified(service.cycle()) == ["u#1", "u#2"]


def test_no_unit_waits_for_a_server_though_a_cycle_had_no_room_to_prepare_its_call(calling: Make) -> None:
    service = calling(limit=1, budget_bytes=1)
    service.cycle(service.envelope("u", 1))
    service.answer(DependencyUnavailable("api"))
    assert service.report_units().unavailable == {"api": 1}
    service.cycle(service.envelope("other", 1))
    service.cycle(after_ms=60_000)  # The unit tries, and waits until the other call has ended.
    assert service.report_units().unavailable == {"api": 1}
    assert [each.envelope.unit for each in service.runner.started] == ["other"]
    service.end()
    service.cycle(service.envelope("third", 1))
    while not service.runner.started:
        service.cycle()
    assert [each.envelope.unit for each in service.runner.started] == ["u"]
    assert service.report_units().unavailable == {"api": 1}
    service.answer()
    assert service.report_units().unavailable == {}


def test_what_follows_from_a_requeued_possible_duplicate_is_marked(calling: Make) -> None:
    service = calling()
    came = service.envelope("u", 1)
    service.cycle(replace(came, record=replace(came.record, headers=(("requeued-possible-duplicate", b"true"),))))
    (turn,) = service.answer().turns
    assert [each.is_possible_duplicate for each in turn.output if isinstance(each, Notification)] == [True]


def test_records_that_come_faster_than_their_unit_is_called_wait_unread_and_none_is_a_dead_letter(calling: Make) -> None:
    service = calling(unit_stash=4)
    service.open(waits=True, stash_limit=4)
    numbers, notified = iter(range(1, 101)), list[str]()
    for cycle in range(400):
        came = [] if service.is_behind(P0) else [service.envelope("u", number) for number in islice(numbers, 1)]
        service.cycle(*came)
        assert service.report_units().stashed <= 5
        if service.runner.started and cycle % 3 == 0:
            notified += service.notified(service.answer())
    assert notified == [f"u#{number}" for number in range(1, 101)]
    assert not any(service.loaded[1:]), "a unit whose call ends soon stays in memory"


def test_if_memory_is_full_and_the_storage_keeps_nothing_no_record_is_read_while_a_handler_is_called(calling: Make) -> None:
    service = calling(can_reload=False, stash_bytes=1)
    service.cycle(service.envelope("u", 1))
    assert service.is_behind(P0)
    assert service.notified(service.answer()) == ["u#1"]
    assert not service.is_behind(P0)


def test_calls_that_fail_make_no_more_dead_letters_in_a_cycle_than_it_has_room_for(calling: Make) -> None:
    service = calling(budget_bytes=1)
    service.cycle(*(service.envelope(unit, 1) for unit in ("u", "v")))
    while len(service.runner.started) < 2:
        service.cycle()
    for call in tuple(service.runner.started):
        service.runner.end(call, PermanentError("never"))
    assert [[len(turn.output) for turn in service.cycle().turns] for _ in range(2)] == [[1], [1]]


def test_a_server_that_answers_one_unit_is_tried_by_others_before_the_stash_of_that_one_is_worked_off(calling: Make) -> None:
    service = calling()
    for unit in ("u", "v"):
        service.cycle(*(service.envelope(unit, number) for number in range(1, 9)))
        service.answer(DependencyUnavailable("api"))
    service.cycle(after_ms=60_000)
    assert [each.envelope.unit for each in service.runner.started] == ["u"]
    service.answer()
    service.cycle()
    assert {each.envelope.unit for each in service.runner.started} == {"u", "v"}
    assert service.report_units().unavailable == {"api": 1}
    for _ in range(16):
        if service.runner.started:
            service.answer()
    assert service.report_units().waiting == 0
    assert service.report_units().unavailable == {}
