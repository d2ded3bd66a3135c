"""The actor system: its promises. Those that Thespian's simple base shares are tested on both, so that both stay equal."""

import gc
import logging
import os
import random
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystem,
    ChildActorExited,
    DeadEnvelope,
    PoisonMessage,
    Thespian_StatusReq,
    WakeupMessage,
)
from thespian.system import simpleSystemBase, timing

from guardian.actor_system import make_actor_system


def make_plain_system() -> ActorSystem:
    return ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)


class Stage:
    """An actor system with one root actor. Its actors run callable messages, and record all others."""

    def __init__(self, make_system: Callable[[], ActorSystem]) -> None:
        self.system = make_system()
        self.base = self.system._systemBase
        self.seen: list[tuple[ActorAddress, Any]] = []
        self.probe = self.make_probe()
        self.addresses_at_rest = set(self.base.actorRegistry)
        self.root = self.system.createActor(self.probe)

    def make_probe(self) -> type[Actor]:
        seen = self.seen

        class Probe(Actor):
            def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
                if callable(message):
                    message(self)
                else:
                    seen.append((self.myAddress, message))

        return Probe

    def do(self, step: Callable[[Actor], object]) -> None:
        self.system.tell(self.root, step)

    def create(self, parent: ActorAddress | None = None, actor_class: type[Actor] | None = None) -> ActorAddress:
        created: list[ActorAddress] = []
        step = lambda actor: created.append(actor.createActor(actor_class or self.probe))  # noqa: E731 - a message.
        self.system.tell(parent or self.root, step)
        return created[0]

    def exit(self, address: ActorAddress) -> None:
        self.do(lambda root: root.send(address, ActorExitRequest()))

    def seen_by(self, address: ActorAddress) -> list[Any]:
        return [message for seer, message in self.seen if seer == address]

    def living(self) -> set[str]:
        return {address for address, ref in self.base.actorRegistry.items() if ref} - self.addresses_at_rest


class Clock:
    """Thespian's clock, which counts how often it is read; a sleep moves it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reads = 0

    def read(self) -> float:
        self.reads += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "currentTime", clock.read)
    monkeypatch.setattr(simpleSystemBase, "currentTime", clock.read)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.fixture(params=[make_plain_system, make_actor_system], ids=["plain", "ours"])
def either(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


@pytest.fixture
def ours() -> Stage:
    return Stage(make_actor_system)


def fail(actor: Actor) -> None:
    raise ValueError(f"{actor} cannot")


# Consequences of an actor that raises


def test_a_message_that_raises_is_tried_three_times_and_then_its_sender_gets_it_as_poison(either: Stage) -> None:
    tries: list[int] = []

    def fail_and_count(actor: Actor) -> None:
        tries.append(1)
        fail(actor)

    child = either.create()
    either.do(lambda root: root.send(child, fail_and_count))
    (poison,) = either.seen_by(either.root)
    assert len(tries) == 3
    assert isinstance(poison, PoisonMessage)
    assert poison.poisonMessage is fail_and_count
    assert "ValueError" in poison.details


def test_a_message_that_raises_keeps_back_none_of_those_behind_it(either: Stage) -> None:
    child = either.create()
    either.do(lambda root: [root.send(child, message) for message in (fail, 1, 2)])
    assert either.seen_by(child) == [1, 2]


def test_an_actor_that_raised_lives_on(either: Stage) -> None:
    child = either.create()
    either.do(lambda root: root.send(child, fail))
    either.do(lambda root: root.send(child, "after"))
    assert either.seen_by(child) == ["after"]


def test_a_question_from_outside_gets_the_poison_as_the_answer(either: Stage) -> None:
    assert isinstance(either.system.ask(either.root, fail), PoisonMessage)


def test_an_actor_that_raises_on_its_exit_request_exits_all_the_same(either: Stage) -> None:
    class Clinging(Actor):
        def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
            raise ValueError("will not go")

    child = either.create(actor_class=Clinging)
    either.exit(child)
    assert either.seen_by(either.root) == [ChildActorExited(child)]
    assert str(child) not in either.living()


def test_a_parent_that_raises_on_a_childs_exit_still_loses_the_child(ours: Stage) -> None:
    class Deaf(ours.probe):  # type: ignore[name-defined]
        def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
            assert not isinstance(message, ChildActorExited)
            super().receiveMessage(message, sender)

    parent = ours.create(actor_class=Deaf)
    ours.exit(ours.create(parent))
    assert not ours.base.actorRegistry[parent.actorAddressString]._yung


# Creation and exit


def test_an_actor_created_while_handling_a_message_can_be_sent_to_at_once(either: Stage) -> None:
    either.do(lambda root: root.send(root.createActor(either.probe), "welcome"))
    assert [message for _, message in either.seen] == ["welcome"]


def test_an_exit_is_told_to_the_actor_and_then_to_its_parent(either: Stage) -> None:
    child = either.create()
    either.exit(child)
    assert either.seen == [(child, ActorExitRequest()), (either.root, ChildActorExited(child))]


def test_an_exit_takes_the_children_and_their_children_along(either: Stage) -> None:
    child = either.create()
    grandchild = either.create(child)
    great_grandchild = either.create(grandchild)
    bystander = either.create()
    either.exit(child)
    assert either.seen_by(grandchild) == either.seen_by(great_grandchild) == [ActorExitRequest()]
    assert either.living() == {either.root.actorAddressString, bystander.actorAddressString}


def test_an_actor_can_send_itself_the_exit_request(either: Stage) -> None:
    child = either.create()
    either.do(lambda root: root.send(child, lambda actor: actor.send(actor.myAddress, ActorExitRequest())))
    assert either.seen_by(either.root) == [ChildActorExited(child)]


def test_a_constructor_gets_what_it_asks_for_by_name(either: Stage) -> None:
    got: list[Any] = []

    class Demanding(Actor):
        def __init__(self, capabilities: dict[str, Any]) -> None:
            got.append(capabilities)

    either.create(actor_class=Demanding)
    assert got == [either.system.capabilities]


class Stillborn(Actor):
    def __init__(self) -> None:
        raise ValueError("no")


def test_the_parent_hears_of_a_child_that_could_not_be_made(either: Stage) -> None:
    child = either.create(actor_class=Stillborn)
    assert either.seen_by(either.root) == [ChildActorExited(child)]
    assert either.living() == {either.root.actorAddressString}


def test_a_child_that_could_not_be_made_leaves_nothing_behind(ours: Stage) -> None:
    child = ours.create(actor_class=Stillborn)
    assert child.actorAddressString not in ours.base.actorRegistry
    assert not ours.base.actorRegistry[ours.root.actorAddressString]._yung


def test_a_primary_actor_that_could_not_be_made_raises_at_its_creator(either: Stage) -> None:
    with pytest.raises(ValueError, match="no"):
        either.system.createActor(Stillborn)


# Dead letters


def test_a_message_to_a_dead_actor_reaches_the_handler_of_dead_letters(either: Stage) -> None:
    child = either.create()
    either.do(lambda root: root.handleDeadLetters())
    either.exit(child)
    either.seen.clear()
    either.do(lambda root: root.send(child, "too late"))
    assert either.seen_by(either.root) == [DeadEnvelope(child.actorAddressString, "too late")]


def test_what_was_queued_behind_an_exit_becomes_dead_letters_while_the_plain_base_drops_it() -> None:
    letters = {}
    for make_system in (make_plain_system, make_actor_system):
        stage = Stage(make_system)
        child = stage.create()
        stage.do(lambda root: root.handleDeadLetters())
        stage.do(lambda root, to=child: [root.send(to, message) for message in (1, ActorExitRequest(), 2, 3)])
        assert stage.seen_by(child) == [1, ActorExitRequest()]
        letters[make_system] = [seen.deadMessage for seen in stage.seen_by(stage.root) if isinstance(seen, DeadEnvelope)]
    assert letters == {make_plain_system: [], make_actor_system: [2, 3]}


def test_an_exit_request_to_a_dead_actor_is_a_dead_letter_and_ends_no_actor(ours: Stage) -> None:
    handler = ours.create()
    ours.system.tell(handler, lambda actor: actor.handleDeadLetters())
    child = ours.create()
    ours.exit(child)
    ours.seen.clear()
    ours.exit(child)
    assert ours.seen == [(handler, DeadEnvelope(child.actorAddressString, ActorExitRequest()))]


def test_without_a_handler_a_message_to_a_dead_actor_vanishes(either: Stage) -> None:
    child = either.create()
    either.exit(child)
    either.seen.clear()
    either.do(lambda root: root.send(child, "too late"))
    assert either.seen == []


def test_a_handler_of_dead_letters_that_exits_is_forgotten(ours: Stage) -> None:
    handler = ours.create()
    ours.system.tell(handler, lambda actor: actor.handleDeadLetters())
    ours.exit(handler)
    assert "DeadLetterBox" not in ours.base.actorRegistry


# Wake-ups


def ask_for_wakeup(stage: Stage, seconds: float, payload: object = None) -> None:
    stage.do(lambda root: root.wakeupAfter(timedelta(seconds=seconds), payload))


def payloads(stage: Stage) -> list[Any]:
    return [message.payload for message in stage.seen_by(stage.root) if isinstance(message, WakeupMessage)]


def test_a_wakeup_comes_with_the_first_delivery_after_its_time_and_not_before(clock: Clock, either: Stage) -> None:
    ask_for_wakeup(either, 10, "ten")
    clock.now += 9.9
    either.system.tell(either.root, "early")
    assert payloads(either) == []
    clock.now += 100
    either.system.tell(either.root, "late")
    assert either.seen_by(either.root) == ["early", WakeupMessage(timedelta(seconds=10), "ten"), "late"]


def test_wakeups_that_expired_together_come_in_the_order_in_which_they_were_asked_for(clock: Clock, either: Stage) -> None:
    for seconds in (5, 3, 9, 3):
        ask_for_wakeup(either, seconds, seconds)
    clock.now += 6
    either.system.tell(either.root, "go")
    assert payloads(either) == [5, 3, 3]
    clock.now += 6
    either.system.tell(either.root, "go")
    assert payloads(either) == [5, 3, 3, 9]


def test_an_asker_with_a_timeout_waits_for_wakeups_and_one_without_does_not(clock: Clock, either: Stage) -> None:
    ask_for_wakeup(either, 10, "ten")
    ask_for_wakeup(either, 30, "thirty")
    assert either.system.ask(either.root, "no answer") is None
    assert payloads(either) == []
    assert either.system.ask(either.root, "no answer", timedelta(seconds=20)) is None
    assert payloads(either) == ["ten"]


def test_a_wakeup_without_an_end_never_comes_and_delays_no_other(clock: Clock, either: Stage) -> None:
    either.do(lambda root: root.wakeupAfter(None, "never"))
    ask_for_wakeup(either, 1, "one")
    clock.now += 1e9
    either.system.tell(either.root, "go")
    assert payloads(either) == ["one"]


def test_the_wakeup_of_a_dead_actor_becomes_a_dead_letter(clock: Clock, either: Stage) -> None:
    either.do(lambda root: root.handleDeadLetters())
    child = either.create()
    either.system.tell(child, lambda actor: actor.wakeupAfter(timedelta(seconds=5), "five"))
    either.exit(child)
    clock.now += 6
    either.seen.clear()
    either.system.tell(either.root, "go")
    assert either.seen == [
        (either.root, DeadEnvelope(child.actorAddressString, WakeupMessage(timedelta(seconds=5), "five"))),
        (either.root, "go"),
    ]


def test_the_status_lists_wakeups_in_the_order_in_which_they_were_asked_for(clock: Clock, either: Stage) -> None:
    for seconds in (5, 3, 9):
        ask_for_wakeup(either, seconds)
    child = either.create()
    status = either.system.ask(either.root, Thespian_StatusReq())
    assert [timer.duration.seconds for _, timer in status.pendingWakeups] == [5, 3, 9]
    assert status.childActors == [child]


def test_without_wakeups_a_delivery_reads_no_clock(clock: Clock, ours: Stage) -> None:
    before = clock.reads
    ours.do(lambda root: [root.send(root.myAddress, number) for number in range(1000)])
    assert len(ours.seen) == 1000
    assert clock.reads - before < 10


# Systems


def test_two_systems_in_one_process_know_nothing_of_each_other() -> None:
    first, second = Stage(make_actor_system), Stage(make_actor_system)
    child = first.create()
    second.system.tell(child, "to whom?")
    assert first.root == second.root
    assert (first.seen, second.seen) == ([], [])
    assert second.living() == {second.root.actorAddressString}


def test_a_system_leaves_the_logging_of_the_process_alone() -> None:
    before = list(logging.getLogger().handlers), logging.getLogger().level
    make_actor_system()
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_the_answer_is_returned_before_what_is_queued_behind_it(either: Stage) -> None:
    class Answering(either.probe):  # type: ignore[name-defined]
        def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
            if message == "question":
                self.send(sender, "answer")
                self.send(self.myAddress, "behind")
            else:
                super().receiveMessage(message, sender)

    actor = either.system.createActor(Answering)
    assert either.system.ask(actor, "question") == "answer"
    assert either.seen == []
    either.system.tell(actor, "next")
    assert either.seen_by(actor) == ["behind", "next"]


# Any actions on actors have the same visible effects on both bases. Actions at the same instant as the consequences of an exit
# (another exit, a retried message) are left out: ours asks the children of the dead actor to exit one delivery earlier.

Step = tuple[str, int, int]
_steps = st.tuples(st.sampled_from(["create", "create", "send", "wake"]), st.integers(0, 9), st.integers(1, 5))
_exits = st.tuples(st.just("exit"), st.integers(0, 9), st.just(0))
_failures = st.tuples(st.just("fail"), st.integers(0, 9), st.just(0))
_around_an_exit = st.tuples(st.lists(_steps, max_size=5), _exits, st.lists(_steps, max_size=5))
_batch = st.one_of(
    st.lists(_steps, min_size=1, max_size=8),
    _around_an_exit.map(lambda parts: [*parts[0], parts[1], *parts[2]]),
    _failures.map(lambda step: [step]),
)
_batches = st.lists(_batch, max_size=8)


def traces_by_actor(make_system: Callable[[], ActorSystem], clock: Clock, batches: list[list[Step]]) -> dict[str, list[str]]:
    stage = Stage(make_system)
    actors = [stage.root]

    def play(root: Actor, batch: list[Step]) -> None:
        messages: dict[str, Callable[[int], Any]] = {
            "create": lambda _: lambda actor: actors.append(actor.createActor(stage.probe)),
            "send": lambda number: number,
            "wake": lambda seconds: lambda actor: actor.wakeupAfter(timedelta(seconds=seconds), seconds),
            "fail": lambda _: fail,
            "exit": lambda _: ActorExitRequest(),
        }
        for kind, whom, value in batch:
            address = actors[whom % len(actors)]
            if kind != "exit" or address is not stage.root:
                root.send(address, messages[kind](value))

    for batch in batches:
        stage.do(lambda root, batch=batch: play(root, batch))
        clock.now += 2
    seen: dict[str, list[str]] = {}
    for address, message in stage.seen:
        seen.setdefault(str(address), []).append(str(message) if not isinstance(message, PoisonMessage) else "poison")
    return seen


@settings(max_examples=examples(200))
@given(batches=_batches)
def test_every_actor_sees_what_it_would_see_in_the_plain_base(batches: list[list[Step]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock()
        monkeypatch.setattr(timing, "currentTime", clock.read)
        monkeypatch.setattr(simpleSystemBase, "currentTime", clock.read)
        assert traces_by_actor(make_actor_system, clock, batches) == traces_by_actor(make_plain_system, clock, batches)


# A daemon's run


class Crowd(Actor):
    """Distinguishes its units by number alone, so that its own memory does not grow."""

    def __init__(self) -> None:
        self.units: list[ActorAddress] = []
        self.exits = 0
        self.chance = random.Random(7)

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        if callable(message):
            message(self)
        self.exits += isinstance(message, ChildActorExited)

    def create(self, number: int) -> None:
        self.units.extend(self.createActor(Idle) for _ in range(number))

    def exit_at_random(self, number: int) -> None:
        for _ in range(number):
            place = self.chance.randrange(len(self.units))
            self.units[place], self.units[-1] = self.units[-1], self.units[place]
            self.send(self.units.pop(), ActorExitRequest())


class Idle(Actor):
    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:
        pass


@pytest.fixture
def crowd() -> Iterator[tuple[ActorSystem, ActorAddress]]:
    system = make_actor_system()
    yield system, system.createActor(Crowd)
    system.shutdown()


def sizes(system: ActorSystem, crowd: ActorAddress) -> tuple[int, int, int]:
    base = system._systemBase
    return len(base.actorRegistry), len(base.actorRegistry[crowd.actorAddressString]._yung), len(base._pendingSends)


def churn(system: ActorSystem, crowd: ActorAddress, *, gone: int, step: int) -> None:
    for _ in range(gone // step):
        system.tell(crowd, lambda actor: actor.exit_at_random(step))
        system.tell(crowd, lambda actor: actor.create(step))


@pytest.mark.slow
def test_20_000_actors_that_exit_in_random_order_leave_nothing_behind(crowd: tuple[ActorSystem, ActorAddress]) -> None:
    system, address = crowd
    before = sizes(system, address)
    system.tell(address, lambda actor: actor.create(20_000))
    assert sizes(system, address) == (before[0] + 20_000, 20_000, 0)
    system.tell(address, lambda actor: actor.exit_at_random(20_000))
    assert sizes(system, address) == before
    assert system._systemBase.actorRegistry[address.actorAddressString].instance.exits == 20_000


def test_a_dead_actor_is_freed_without_the_cyclic_garbage_collector(ours: Stage) -> None:
    child = ours.create()
    instance = weakref.ref(ours.base.actorRegistry[child.actorAddressString].instance)
    gc.disable()
    try:
        ours.exit(child)
        assert instance() is None
    finally:
        gc.enable()


def test_primary_actors_that_come_and_go_leave_nothing_behind(ours: Stage) -> None:
    ours.exit(ours.root)
    before = len(ours.base.actorRegistry)
    for _ in range(100):
        ours.system.tell(ours.system.createActor(Idle), ActorExitRequest())
    assert len(ours.base.actorRegistry) == before
    assert not ours.base.actorRegistry[ours.system.systemAddress.actorAddressString].instance.responses


@pytest.mark.nightly("memory")
def test_memory_is_flat_while_a_million_actors_come_and_go_among_100_000(crowd: tuple[ActorSystem, ActorAddress]) -> None:
    system, address = crowd
    system.tell(address, lambda actor: actor.create(100_000))
    churn(system, address, gone=200_000, step=10_000)
    before, resident = sizes(system, address), resident_bytes()
    churn(system, address, gone=1_000_000, step=10_000)
    assert sizes(system, address) == before
    # Growing containers took some 8 MB once; Thespian's plain base would have taken 280 MB.
    assert resident_bytes() - resident < 24_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
