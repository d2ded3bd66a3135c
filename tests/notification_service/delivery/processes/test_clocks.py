"""Delivery workers whose clock is a year off for a moment, in which one of them begins: nothing is forgotten or called twice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from harness.delivering import Delivering
from harness.nightly import at_night
from harness.scripted_receiver import OK, Reply, ScriptedReceiver, scripted_receiver
from harness.waiting import wait_until

from notification_service.configuration.configuration import load
from notification_service.delivery.core.jobs import JobState
from notification_service.wiring.delivery import make_ledger
from resequencer.clock import Belief

pytestmark = pytest.mark.slow
JUMP_SECONDS = 6
SET_BY_FILE = """
import time
right = time.time_ns
def time_ns():
    with open({file!r}) as file:
        return right() + int(file.read()) * 86_400 * 10**9
time.time_ns = time_ns
"""


@pytest.fixture
def set_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the wall clock of the processes that the test starts, in days ahead; the time that passes stays right.

    Python reads it from a file. libfaketime stops threads of it now and then, in the semaphores that it takes over.
    """
    file, modules = tmp_path / "clock", tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(SET_BY_FILE.format(file=str(file)))
    monkeypatch.setenv("PYTHONPATH", str(modules), prepend=os.pathsep)

    def write(days: int) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{days}")
        fresh.replace(file)

    write(0)
    return write


@pytest.fixture
def receiver() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as made:
        made.answers = lambda _key, id_, _nth: Reply(418) if id_ == "N0" else OK
        yield made


@pytest.fixture
def delivering(tmp_path: Path, receiver: ScriptedReceiver) -> Iterator[Delivering]:
    made = Delivering(tmp_path, receiver.url, None, "", units=20, per_unit=3)
    keys = f"clock.trusted-after = {2 * JUMP_SECONDS}s, delivery.ledger.retention = {JUMP_SECONDS}s"
    with made.configuration.open("a") as file:
        file.write(f"payment-status-notification {{ {keys} }}\n")
    with closing(made):
        yield made


@pytest.mark.parametrize("days", [365, *at_night("clocks", -365)])
def test_a_clock_that_is_a_year_off_for_a_moment_costs_nothing(
    delivering: Delivering, receiver: ScriptedReceiver, set_clock: Callable[[int], None], days: int
) -> None:
    def is_complete(job: str) -> bool:
        return delivering.job(job).state is JobState.COMPLETE

    def is_settled() -> bool:
        file = delivering.directory / "clock-delivery-0.json"
        return file.exists() and msgspec.json.decode(file.read_bytes(), type=Belief).is_settled

    delivering.start_worker("--slot", "0")
    delivering.start_job("before")
    wait_until(lambda: is_complete("before"), "the first job ends")
    wait_until(is_settled, "the clock has agreed for as long as it is wrong afterwards")
    set_clock(days)
    until = monotonic() + JUMP_SECONDS
    delivering.start_worker("--slot", "1")
    delivering.start_job("meanwhile")
    wait_until(lambda: monotonic() > until, "the clock is wrong for so long")
    set_clock(0)
    receiver.answers = lambda *_: OK
    with closing(make_ledger(load(delivering.configuration))) as ledger:
        assert ledger.retry_failed("before", with_late=True) == (1, 0), "by a clock that is not trusted nothing is deleted"
    delivering.start_job("after")
    wait_until(lambda: all(map(is_complete, ("before", "meanwhile", "after"))), "all jobs end, and what had failed is delivered")
    assert Counter(each.id for each in receiver.calls) == {id_: 4 if id_ == "N0" else 3 for _, id_ in delivering.pairs}
