"""Faults that schedules prevent, planted in the code while a simulation runs. Replay one with its seed:

PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_schedules.runs SEED --fault NAME
"""

import pytest
from harness.planted.delivery import Fault, plant_fault

from notification_service.delivery.schedules import core as progress
from notification_service.delivery.schedules.runner import ScheduleRunner
from resequencer.clock import SteadyClock

FAULTS = (
    Fault("a jump of the clock is believed", SteadyClock.now, "self.read(self._wall)", "self._wall()"),
    Fault(
        "a schedule that is ahead goes on at once",
        ScheduleRunner._find_next,
        "is_ahead(progress, now) and not self._clock.is_trusted",
        "False",
        seed=4,
    ),
    Fault(
        "a schedule that is ahead waits for ever",
        ScheduleRunner._find_next,
        "is_ahead(progress, now) and not self._clock.is_trusted",
        "is_ahead(progress, now)",
        seed=15,
    ),
    Fault("a tick less than a minute ahead is ahead", progress.is_ahead, " + GRACE_MS", "", seed=53),
    Fault("ticks made ahead are made again", progress._at, " or progress.was_made_ahead(tick)", "", seed=53),
    Fault("all ticks up to one made ahead count as made", progress._runs, "((progress.run_from,", "((0,", seed=15),
    Fault(
        "a second jump hides what was made at the first",
        progress._at,
        "(tick, _runs(progress))",
        "(tick, tuple(run for run in progress.ahead if run[1] >= tick))",
        seed=261,
    ),
    Fault("a missed tick is made although none is wanted", progress._at, "missed is Missed.NONE", "False"),
    Fault("a tick under way is left for the next one", progress.find_next, "if not progress.is_done:", "if False:"),
    Fault(
        "an answer that was lost counts as a refusal",
        ScheduleRunner._note,
        "self._set(found)",
        "self._set(self._progress or found)",
        seed=1,
    ),
    Fault(
        "progress is stored behind the requests",
        ScheduleRunner._store,
        "self._sink.store(requests, progress)",
        "(not requests or self._sink.store(requests, self._progress), self._sink.store([], progress))",
    ),
)


def plant(patch: pytest.MonkeyPatch, name: str) -> None:
    """Plant the fault of this name until the patch is undone."""
    for fault in (each for each in FAULTS if each.name == name):
        plant_fault(patch, fault)


SEEDS = {each.name: each.seed for each in FAULTS}
