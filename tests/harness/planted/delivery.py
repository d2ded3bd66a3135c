"""Faults that delivery prevents, planted in the code while a simulation runs: a piece of a function's text becomes another."""

import inspect
import itertools
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import pytest

from notification_service.delivery import event_file
from notification_service.delivery.core import gate, published_events
from notification_service.delivery.ledger import claims, intake, job_orders, job_rows, upkeep
from notification_service.delivery.ledger.finishing import Finishing
from notification_service.delivery.ledger.ledger import Ledger
from resequencer.clock import SteadyClock


class Fault(NamedTuple):
    """`old` stands once in the function, and becomes `new`. Those of one name are planted together.

    A simulation with `seed` notices it; a change of the code may need another seed.
    """

    name: str
    function: Callable[..., Any]
    old: str
    new: str
    seed: int = 0


_SHUT = 'if row is None or row["epoch"] != claim.epoch or row["owner"] is None:'
_BEGIN = "    with database.write() as connection:\n        now ="

FAULTS = (
    Fault("a former owner's result counts", Finishing._take, _SHUT, "if row is None:", seed=1),
    Fault(
        "positions written before the rows",
        intake._take_in,
        _BEGIN,
        "    with database.write() as connection:\n"
        "        _write_positions(connection, intake.job, portion.positions)\n" + _BEGIN,
        seed=4,
    ),
    Fault("a former reader takes in", intake._is_ours, "JOBS.c.intake_epoch == intake.epoch, ", "", seed=4),
    Fault("a held unit takes in a head", intake._rows, "found.held_by is not None", "found.held_by == -1", seed=33),
    Fault(
        "complete before all is read",
        job_rows.complete_jobs,
        "has_all & (JOBS.c.ingested == ENDED)",
        "(JOBS.c.ingested == ENDED)",
    ),
    Fault("complete once more", job_rows.complete_jobs, "JOBS.c.completed_at.is_(None), is_done", "is_done", seed=3),
    Fault(
        "events numbered outside of the transaction",
        job_rows._next_number,
        "taken = update(COUNTERS)",
        "return next(_NUMBERS)\n    taken = update(COUNTERS)",
        seed=7,
    ),
    Fault("half a line of events stays", event_file._end_last_line, "os.ftruncate(descriptor, size - len(last))", "pass", seed=2),
    Fault("an end is published once more", published_events.next_events, "if _key(each) in known:", "if False:", seed=34),
    Fault("the newest row goes next", Finishing.promote, "order_by(ROWS.c.id)", "order_by(ROWS.c.id.desc())"),
    Fault("no row goes next", Finishing.promote, "if not free:", "if True:"),
    Fault("a held unit goes on", Finishing.promote, 'if key in self.keys and self.keys[key]["held_by"] is None', "", seed=27),
    Fault("a row that is open again waits for a later one", Finishing._take, 'self.freed.add(row["key"])', "pass", seed=232),
    Fault("any row of a unit is claimed", claims.claim, "IS_HEAD, ", "ROWS.c.ended_at.is_(None), "),
    Fault("a lease is ignored", claims._look, ">= lease_ms(receiver)", ">= 0", seed=9),
    Fault("a lease never ends", claims._look, ">= lease_ms(receiver)", ">= 10**15"),
    Fault(
        "a jump of the clock is believed", SteadyClock._compared, "self._settled_ms if believed.is_settled else 0", "0", seed=41
    ),
    Fault("a pause in the far future lasts", upkeep.end_long_pauses, "if not over:", "if True:", seed=28),
    Fault("the rate waits for an instant in the far future", gate.Gate._next_call, " if self.next_call <=", " if 0 <=", seed=19),
    Fault(
        "deleted by a clock that is not trusted",
        upkeep.delete_expired,
        "if not database.clock.was_trusted:",
        "if False:",
        seed=24,
    ),
    Fault("deleted by a clock that is not trusted", upkeep._delete_rows, "if not database.clock.was_trusted:", "if False:"),
    Fault("deleted by a clock that is not trusted", upkeep._note_look, "now < ahead_at + retention_ms", "False", seed=24),
    Fault("calls under way are not counted", gate.Gate.permits, " - running)", ")"),
    Fault("many probes at once", gate.Gate.permits, "min(1, wanted)", "wanted", seed=14),
    Fault("a probe beside the probe", gate.Gate.permits, " and self.probe is None", ""),
    Fault("a probe beside the probe", claims._look, "gate.probe in running", "False"),
    Fault("a paused receiver is called", gate.Gate.permits, "if self.pause is not None:", "if False:", seed=1000),
    Fault("a paused receiver is called", claims._look, "gate.pause is not None or ", "", seed=1000),
    Fault("the pause stays as it is", gate.Gate._probed, "self.pause_ms * 2", "self.pause_ms", seed=6),
    Fault("a probe whose unit is forgotten keeps the gate shut", gate._is_awake, " or outcome.announces", "", seed=3),
    Fault(
        "a suspension counts an attempt",
        Finishing._take,
        "self._wait(row, RetryMode.SUSPENSION",
        'row.update(attempts=row["attempts"] + 1) or self._wait(row, RetryMode.SUSPENSION',
    ),
    Fault("rows that shut the gate stay failed", Finishing.finish, "self._reopen_suspects()", "pass", seed=104),
    Fault("a refused unit shuts the gate on", gate.Gate.refused, "before.successes != successes", "False", seed=369),
    Fault("a retry without a wait", Finishing._again, "self.now + outcome.after_ms", "self.now"),
    Fault("a forgotten unit is not announced again", Finishing._again, "if outcome.announces:", "if False:"),
    Fault("verified without a wait", Finishing._done, "self.now + after", "self.now", seed=16),
    Fault("late is not told", Finishing._done, 'row["is_late"] or row["id"] < key["delivered"]', "False", seed=134),
    Fault(
        "a late row without a request for it",
        job_orders._reopen,
        'key["delivered"] > row["id"] and not with_late',
        "False",
        seed=326,
    ),
    Fault(
        "a repair stops half-way", Ledger.go_on, "job_orders.go_on_repairing(self.database, self.receivers, job)", "pass", seed=16
    ),
    Fault("rows of a cancelled job are claimed", claims.claim, "if each.cancelled_at is not None]", "if False]", seed=63),
    Fault("a row that is open again counts as failed", Finishing.reopen, 'row["status"], -1)', 'row["status"], 0)', seed=13),
    Fault("results of a cancelled job count", Finishing.end, '"owner": None, ', "", seed=1),
    Fault(
        "a cancellation is not ended",
        Ledger.go_on,
        "job_orders.cancel_rows(self.database, self.receivers, job)",
        "pass",
        seed=78,
    ),
    Fault(
        "open jobs lose their ended rows",
        upkeep._lets_go,
        "| JOBS.c.completed_at.is_not(None)",
        "| (JOBS.c.read >= 0)",
        seed=16,
    ),
    Fault("open jobs lose their ended rows", upkeep._until, "JOBS.c.completed_at.is_(None)", "JOBS.c.is_live", seed=16),
)


def plant(patch: pytest.MonkeyPatch, name: str) -> None:
    """Plant the fault of this name until the patch is undone.

    Raises:
        LookupError: The text that it changes does not stand once in the function any more.
    """
    for fault in (each for each in FAULTS if each.name == name):
        plant_fault(patch, fault)


def plant_fault(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    function = fault.function
    assert isinstance(function, FunctionType)
    text = textwrap.dedent(inspect.getsource(function))
    if text.count(fault.old) != 1:
        raise LookupError(f"{fault.old} stands {text.count(fault.old)} times in {function.__qualname__}")
    patch.setitem(function.__globals__, "_NUMBERS", itertools.count(1))
    made: dict[str, Any] = {}
    changed = "from __future__ import annotations\n" + text.replace(fault.old, fault.new)
    exec(compile(changed, fault.name, "exec"), function.__globals__, made)
    patch.setattr(function, "__code__", made[function.__name__].__code__)


SEEDS = {each.name: each.seed for each in FAULTS}
