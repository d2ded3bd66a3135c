"""What every store promises: each command is applied once and in order, and what follows leaves once, whatever is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.waiting import wait_until

from guardian.ports import TransportUnavailable
from notification_service.aggregation.port import Store
from notification_service.aggregation.runner import StoreRunner
from tests.notification_service.aggregation.stores.stages import StoreStage, make_runner, run_until_read


@pytest.fixture
def runner(stage: StoreStage) -> Iterator[Callable[..., StoreRunner]]:
    made: list[StoreRunner] = []

    def make(slot: int = 0, open_store: Callable[[], Store] | None = None) -> StoreRunner:
        made.append(make_runner(stage, slot, open_store))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Killed(BaseException):
    """Ends a runner in the midst of a commit: nothing after it is done."""


def test_a_group_is_complete_with_its_last_member_and_once(stage: StoreStage, runner: Any) -> None:
    one = runner()
    for number in range(1, 6):
        stage.send("a", f"m{number}", number=number, of=5)
    stage.send("b", "m1", number=7, of=2)
    run_until_read(stage, one)
    assert [(each.key, each.head["sum"]) for each in stage.completions()] == [("a", 15)]
    stage.send("b", "m2", number=8, of=2)
    run_until_read(stage, one)
    assert [(each.key, each.head["sum"]) for each in stage.completions()] == [("a", 15), ("b", 15)]


def test_values_are_there_after_a_new_start(stage: StoreStage, runner: Any) -> None:
    one = runner()
    stage.send("a", "m1", number=3, of=2)
    run_until_read(stage, one)
    one.close()
    two = runner()
    stage.send("a", "m2", number=4, of=2)
    run_until_read(stage, two)
    assert [each.head for each in stage.completions()] == [{"members": 2, "sum": 7, "applied": 2, "of": 2}]
    assert stage.values(two, "a").keys() == {"", "m1", "m2"}


def test_what_is_no_command_becomes_a_dead_letter_and_the_others_go_on(stage: StoreStage, runner: Any) -> None:
    one = runner()
    stage.send("a", "m1", wrong=True)
    stage.send("a\nb", "m1", number=1, of=1)
    stage.send("a", "m2", number=1, of=1)
    run_until_read(stage, one)
    reasons = {each.key: each.headers["dead-letter-reason"] for each in stage.dead_letters()}
    assert reasons == {"a": b"handler-failed", "a\nb": b"invalid-id"}
    assert [each.key for each in stage.completions()] == ["a"]


def test_an_instant_fires_once_and_only_when_all_commands_before_it_were_applied(stage: StoreStage, runner: Any) -> None:
    one = runner()
    stage.send("a", "m1", number=1, of=9, due=5_000)
    run_until_read(stage, one)
    one.turn()
    assert stage.completions() == []
    stage.clock.ms = 6_000
    stage.send("a", "m2", number=2, of=9, due=5_000)
    run_until_read(stage, one)
    wait_until(lambda: one.turn() or stage.completions(), "the instant has fired")
    one.close()
    two = runner()
    stage.send("b", "m1", number=1, of=9)
    run_until_read(stage, two)
    two.turn()
    assert [(each.key, each.head["sum"], each.head["rang"]) for each in stage.completions()] == [("a", 3, 1)]


def test_the_members_of_a_key_that_ends_are_deleted_in_portions(
    stage: StoreStage, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notification_service.aggregation.core._FORGOTTEN_AT_ONCE", 2)
    one = runner()
    for number in range(5):
        stage.send("a", f"m{number}", number=number, of=9)
    stage.send("ab", "m0", number=1, of=9)
    stage.send("a", end=True, due=500)
    run_until_read(stage, one)
    wait_until(lambda: one.turn() or not stage.values(one, "a"), "all members are deleted")
    assert stage.values(one, "ab").keys() == {"", "m0"}
    one.close()
    two = runner()
    stage.send("ab", "m1", number=1, of=9)
    run_until_read(stage, two)
    assert stage.values(two, "a") == {}
    assert stage.values(two, "ab").keys() == {"", "m0", "m1"}


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("step", ["publish", "write"])
@pytest.mark.parametrize("error", [Killed, TransportUnavailable])
def test_a_failure_around_each_step_of_a_commit_neither_loses_nor_doubles(
    stage: StoreStage, runner: Any, step: str, is_before: bool, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = runner()
    stage.send("a", "m1", number=1, of=3)
    run_until_read(stage, one)
    stage.send("a", "m2", number=2, of=3)
    stage.send("a", "m3", number=3, of=3)
    fail_once(one, step, error, monkeypatch, is_before=is_before)
    try:
        wait_until(lambda: one.turn() or one._problem, "the failure")
    except Killed:
        one.close()  # The group would wait for it as long as its session lasts; nothing is committed by that.
        one = runner()
    monkeypatch.undo()
    stage.send("b", "m1", number=5, of=1)
    run_until_read(stage, one)
    one.turn()
    assert [(each.key, each.head["sum"], each.head["applied"]) for each in stage.completions()] == [("a", 6, 3), ("b", 5, 1)]


def fail_once(
    one: StoreRunner, step: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch, *, is_before: bool
) -> None:
    store: Any = one._store
    reasons = error("killed")
    if step == "publish":
        publish, has_failed = store._transport.publish, list[bool]()

        def failing(outputs: Any) -> None:
            # An empty publication is one of a takeover.
            if has_failed or not any(each.records for each in outputs):
                return publish(outputs)
            has_failed.append(True)
            if not is_before:
                publish(outputs)
            raise reasons

        monkeypatch.setattr(store._transport, "publish", failing)
        return
    from contextlib import contextmanager

    from notification_service.aggregation.files import ValuesFile

    writing = ValuesFile.writing
    failed = list[bool]()

    @contextmanager
    def failing_writing(self: ValuesFile) -> Iterator[Any]:
        if failed:
            with writing(self) as found:
                yield found
            return
        failed.append(True)
        if is_before:
            raise reasons
        with writing(self) as found:
            yield found
        raise reasons

    monkeypatch.setattr(ValuesFile, "writing", failing_writing)
