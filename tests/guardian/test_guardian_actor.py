"""The guardian: one actor per unit, passivation without a loss, and partitions that come and go."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from harness.actors.asking import FAR, P0, P1, Asked
from harness.driving import NoChance, Recorder, decoder
from thespian.actors import Actor, ActorAddress, ActorSystem

from guardian.actor_system import make_actor_system
from guardian.guardian_actor import Guardian, Stop, TakeTurns
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS
from resequencer.actor import Resequencer
from resequencer.batch import Batch, TakeTurn, TurnsTaken, UnitKey
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import Snapshot, WaitKind
from resequencer.strategies.sequence import Sequence
from resequencer.turn.turn import TurnContext
from resequencer.unit_codec import UnitCodec

U = UnitKey(P0, "u")


class CountedResequencer(Resequencer):
    """Counts the actors that were made, and the messages of each."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1


class Hasty(Actor):
    """Sends the guardian several requests at once: the second arrives while the first is processed."""

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        if isinstance(message, tuple):
            guardian, questions, self.asker = *message, sender
            for each in questions:
                self.send(guardian, each)
        elif isinstance(message, TurnsTaken):
            self.send(self.asker, message)


def _guardian(system: ActorSystem) -> tuple[ActorAddress, type[CountedResequencer]]:
    context = TurnContext(Sequence(), Recorder(), LATEST_OBJECTS, ResequencerSettings(), NoChance())
    child = type(
        "Child",
        (CountedResequencer,),
        {"context": context, "codec": UnitCodec(context.strategy, decoder().decode, LATEST_OBJECTS), "made": 0},
    )
    guardian = type("Guarding", (Guardian,), {"resequencer": child})
    return system.createActor(guardian), child


def _turns(now: int, envelope: DataEnvelope, stored: Snapshot | None = None) -> TakeTurns:
    batch = Batch(now)
    batch.out = 1
    return TakeTurns(batch, [TakeTurn(U, (envelope,), (), batch, stored)])


def test_envelopes_of_a_unit_meet_one_actor_over_many_polls(asked: Asked) -> None:
    assert asked.notified(asked.poll(asked.envelope("u", 2))) == []
    assert asked.notified(asked.poll(asked.envelope("u", 1))) == ["u#1", "u#2"]
    assert asked.report_units().active == 1
    assert asked.loaded == [{U}, frozenset()]


def test_the_same_unit_in_two_partitions_is_two_units(asked: Asked) -> None:
    decided = asked.poll(asked.envelope("u", 1), asked.envelope("u", 1, P1))
    assert asked.notified(decided) == ["u#1", "u#1"]
    assert asked.report_units().active == 2


def test_a_unit_that_went_idle_is_loaded_again_and_goes_on(asked: Asked) -> None:
    asked.poll(asked.envelope("u", 1))
    asked.poll(after_ms=30_000)
    assert asked.report_units().active == 0
    decided = asked.poll(asked.envelope("u", 1), asked.envelope("u", 2))
    assert asked.notified(decided) == ["u#2"]
    assert asked.loaded[-1] == {U}


def test_who_is_stopped_and_spoken_to_in_the_same_poll_is_loaded_again(asked: Asked) -> None:
    asked.poll(asked.envelope("u", 1))
    decided = asked.poll(asked.envelope("u", 2), after_ms=30_000)
    assert asked.notified(decided) == ["u#2"]
    assert asked.loaded[-1] == {U}
    assert asked.report_units().active == 1


def test_where_turns_store_nothing_a_unit_is_stored_whole_before_it_stops(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(can_reload=False)
    asked.poll(asked.envelope("u", 1, mds=["PAIN_001"]))
    asked.poll(asked.envelope("u", 2), asked.envelope("v", 2))
    assert asked.stored == {}
    asked.poll(after_ms=30_000)
    asked.poll()
    assert asked.report_units().active == 1, "v waits"
    decided = asked.poll(asked.envelope("u", 1, mds=["PAIN_001"]), asked.envelope("u", 3))
    assert asked.notified(decided) == ["u#3"]
    assert asked.loaded[-1] == {U}
    assert [name for name, _ in asked.handler.seen[-1][1].mds] == ["PAIN_001"]


def test_idle_units_are_stored_and_stop_however_little_a_cycle_may_let_out(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(can_reload=False, budget_bytes=1)
    for number in range(20):
        asked.poll(asked.envelope(f"u{number}", 1, mds=["PAIN_001"]))
    asked.poll(after_ms=30_000)
    asked.poll()
    assert (asked.report_units().active, len(asked.stored)) == (0, 20)


def test_what_arrives_while_a_unit_is_stored_or_stops_is_not_forgotten(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(can_reload=False)
    asked.poll(asked.envelope("u", 1))
    assert asked.notified(asked.poll(asked.envelope("u", 2), after_ms=30_000)) == ["u#2"]
    asked.poll(after_ms=30_000)
    assert asked.notified(asked.poll(asked.envelope("u", 2), asked.envelope("u", 3))) == ["u#3"]
    assert asked.notified(asked.poll(asked.envelope("u", 3))) == []


def test_what_arrives_while_an_actor_stops_is_kept_for_the_next_one() -> None:
    """The turns are in the guardian's queue before the exit of the actor that was stopped."""
    system = make_actor_system()
    guardian, child = _guardian(system)
    asked = Asked()
    first, second = asked.envelope("u", 1), asked.envelope("u", 2)
    (turn,) = system.ask(guardian, _turns(0, first)).batch.turns
    stored = Snapshot("u", turn.change.state, None, ())
    taken = system.ask(system.createActor(Hasty), (guardian, (Stop((U,)), _turns(30_000, second, stored))))
    assert [each.notification_id for turn in taken.batch.turns for each in turn.output] == ["u#2"]
    assert child.made == 2
    system.shutdown()
    asked.actors.close()


def test_a_partition_that_comes_back_while_its_actors_stop_begins_with_new_ones(asked: Asked) -> None:
    asked.poll(asked.envelope("u", 2))
    asked.drop(P0)
    assert asked.report_units().active == 0
    assert asked.notified(asked.poll(asked.envelope("u", 1))) == ["u#1", "u#2"]


def test_the_units_of_a_dropped_partition_leave_memory_and_the_others_stay(asked: Asked) -> None:
    asked.poll(*(asked.envelope(f"u{n}", 1 + n % 2, partition) for n in range(50) for partition in (P0, P1)))
    assert asked.report_units() == msgspec.structs.replace(asked.report_units(), active=100, waiting=50)
    asked.drop(P0)
    report_units = asked.report_units()
    assert (report_units.active, report_units.waiting) == (50, 25)
    assert {key.partition for key, _ in report_units.oldest} == {P1}


def test_a_wake_of_a_partition_that_was_dropped_meanwhile_wakes_no_unit(asked: Asked) -> None:
    asked.poll(asked.envelope("u", 2))
    asked.actors.prepare(asked.now + 21_000, (), FAR, FAR)
    asked.drop(P0)
    assert asked.actors.decide(asked.now + 21_000, {}, {}).turns == []


def test_units_that_wait_in_storage_are_loaded_only_when_they_are_woken(new_asked: Callable[..., Asked]) -> None:
    before = new_asked()
    before.poll(before.envelope("u", 2), before.envelope("v", 2))
    after = new_asked()
    after.stored, after.waiting, after.now = before.stored, dict(before.waiting), before.now
    after.arm(list(after.waiting))
    assert (after.report_units().active, after.report_units().waiting) == (0, 2)
    assert after.notified(after.poll(after_ms=20_999)) == []
    assert after.loaded[-1] == frozenset()
    assert sorted(after.notified(after.poll(after_ms=1))) == ["u#2", "v#2"]
    assert after.loaded[-1] == {U, UnitKey(P0, "v")}


def test_after_a_release_the_actor_stops_and_the_next_inherits(asked: Asked) -> None:
    asked.poll(asked.envelope("u", 2))
    assert asked.notified(asked.poll(after_ms=21_000)) == ["u#2"]
    asked.poll()
    assert asked.report_units().active == 0
    assert asked.notified(asked.poll(asked.envelope("u", 2), asked.envelope("u", 1), asked.envelope("u", 3))) == ["u#1", "u#3"]


def test_arrivals_come_before_the_wake_of_the_same_poll(asked: Asked) -> None:
    """The missing envelope comes with the poll of the deadline, so the release is not necessary."""
    asked.poll(asked.envelope("u", 2))
    decided = asked.poll(asked.envelope("u", 1), after_ms=21_000)
    assert asked.notified(decided) == ["u#1", "u#2"]
    assert decided.turns[0].releases == []


def test_within_a_unit_what_leaves_keeps_the_order_of_handling(asked: Asked) -> None:
    numbers = [7, 3, 1, 5, 2, 6, 4]
    decided = asked.poll(*(asked.envelope(unit, number) for number in numbers for unit in ("u", "v")))
    for unit in "uv":
        mine = [each for each in asked.notified(decided) if each.startswith(unit)]
        assert mine == [f"{unit}#{number}" for number in range(1, 8)]
    assert len(decided.turns) == 2


def test_it_says_when_it_wants_to_be_asked_again(asked: Asked) -> None:
    assert asked.poll().next_wake_at is None
    assert asked.poll(asked.envelope("u", 2)).next_wake_at == asked.now + 21_000


def test_the_report_of_units_tells_who_waits_longest_and_for_what(asked: Asked) -> None:
    asked.poll(asked.envelope("u", 3))
    asked.poll(asked.envelope("v", 2), after_ms=1_000)
    report_units = asked.report_units()
    assert [(key.unit, waits.waits_for, waits.kind) for key, waits in report_units.oldest] == [
        ("u", "sequence:1", WaitKind.DEADLINE),
        ("v", "sequence:1", WaitKind.DEADLINE),
    ]
    assert (report_units.stashed, report_units.stashed_bytes > 0) == (2, True)


def test_what_left_memory_at_the_bound_is_released_in_time_all_the_same(new_asked: Callable[..., Asked]) -> None:
    asked = new_asked(stash_bytes=1_000)
    asked.poll(*(asked.envelope(f"u{n}", 2) for n in range(20)))
    assert asked.report_units().stashed_bytes > 1_000
    asked.poll()
    assert asked.report_units().stashed_bytes <= 1_000
    assert asked.report_units().waiting == 20
    asked.now += 21_000
    notified = [each for _ in range(20) for each in asked.notified(asked.poll())]
    assert notified == [f"u{n}#2" for n in range(20)]  # Loaded one after the other, as far as memory allows.


@pytest.mark.slow
def test_ten_thousand_units_come_wait_and_go(asked: Asked) -> None:
    units = [f"u{n}" for n in range(10_000)]
    asked.poll(*(asked.envelope(unit, 2) for unit in units))
    assert (asked.report_units().active, asked.report_units().waiting) == (10_000, 10_000)
    notified = asked.notified(asked.poll(*(asked.envelope(unit, 1) for unit in reversed(units))))
    assert len(notified) == 20_000
    asked.poll(after_ms=30_000)
    assert asked.report_units().active == 9_000, "a thousand at once: the intake goes on meanwhile"
    for _ in range(9):
        asked.poll()
    report_units = asked.report_units()
    assert (report_units.active, report_units.waiting, report_units.stashed_bytes) == (0, 0, 0)


def test_it_answers_every_kind_of_question_once() -> None:
    system = make_actor_system()
    guardian, _ = _guardian(system)
    asked = Asked()
    assert isinstance(system.ask(guardian, _turns(0, asked.envelope("u", 1))), TurnsTaken)
    assert isinstance(system.ask(guardian, Stop((U,))), Stop)
    asked.actors.close()
    system.shutdown()
