"""The scheduler of a receiver: what it does when it stood still, and when outcomes cannot be written."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness.ledger_stage import LedgerStage, item
from harness.receivers import delivery_settings
from harness.waiting import async_wait_until

from notification_service.delivery.core.answers import Answer
from notification_service.delivery.core.jobs import Claim
from notification_service.delivery.ledger.claims import Claimed
from notification_service.delivery.settings import Step, WorkerSettings
from notification_service.delivery.worker import LedgerThreads, Scheduler

WORKER = delivery_settings().worker


class Recording:
    """Takes everything, and notes the calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def call(self, claim: Claim) -> Answer:
        self.called.append(claim.notification_id)
        return Answer(201)


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    made = LedgerStage(f"sqlite:///{tmp_path}/ledger.db", delivery_settings("timeout = 1s").receivers[0][1])
    made.take(item("a", 1), item("b", 2))
    yield made
    made.close()


def run(stage: LedgerStage, caller: Recording, until: Callable[[], object], worker: WorkerSettings = WORKER) -> None:
    """Run a scheduler until that is true, or it ends by itself."""

    async def deliver() -> None:
        with ThreadPoolExecutor(2) as executor:
            scheduler = Scheduler(stage.ledger, LedgerThreads(executor), "r", worker, "w", caller)  # type: ignore[arg-type]
            running = asyncio.create_task(scheduler.run())
            await async_wait_until(lambda: running.done() or until(), "what it is run for")
            scheduler.stop()
            await running

    asyncio.run(deliver())


def test_a_claim_that_the_process_stood_still_with_is_not_called(stage: LedgerStage, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Claimed] = []
    original = stage.ledger.claim

    def claim(receiver: str, step: Step, owner: str, most: int) -> Claimed:
        """The lease is 12 s, and a call takes up to 1 s."""
        looks.append(original(receiver, step, owner, most))
        stage.now += 11_500 if looks[-1].claims else 0
        return looks[-1]

    monkeypatch.setattr(stage.ledger, "claim", claim)
    caller = Recording()
    run(stage, caller, lambda: len(looks) > 3)
    assert caller.called == []
    assert stage.job().open == 2
    monkeypatch.undo()
    stage.now += 13_000
    run(stage, caller, lambda: len(caller.called) == 2)
    assert caller.called == ["a-1", "b-2"]


def test_while_its_pool_is_full_nothing_is_claimed_that_would_only_wait(
    stage: LedgerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[int] = []
    original = stage.ledger.claim

    def claim(receiver: str, step: Step, owner: str, most: int) -> Claimed:
        wanted.append(most)
        return original(receiver, step, owner, most)

    monkeypatch.setattr(stage.ledger, "claim", claim)

    looks: list[int] = []
    wait = Scheduler._wait

    async def look(self: Scheduler, step: Step, milliseconds: int) -> None:
        looks.append(milliseconds)
        await wait(self, step, milliseconds)

    monkeypatch.setattr(Scheduler, "_wait", look)

    class Holding(Recording):
        """Keeps its first call under way for many looks for work."""

        running = 0

        async def call(self, claim: Claim) -> Answer:
            answer = await super().call(claim)
            if len(self.called) == 1:
                await async_wait_until(lambda: len(looks) >= 20, "looks for work")
                self.running = stage.ledger.gates()[0].running
            return answer

    caller = Holding()
    worker = msgspec.structs.replace(delivery_settings().worker, chunk=1, poll_ms=10, max_poll_ms=10)
    run(stage, caller, lambda: len(caller.called) == 2, worker)
    assert (caller.running, set(wanted)) == (1, {1}), "the gate would permit more"
    assert caller.called == ["a-1", "b-2"]


def test_nothing_more_is_claimed_when_outcomes_cannot_be_written(stage: LedgerStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def finish(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(stage.ledger, "finish", finish)
    with pytest.raises(ExceptionGroup) as raised:
        run(stage, Recording(), lambda: False)
    assert raised.group_contains(RuntimeError, match="a defect")
