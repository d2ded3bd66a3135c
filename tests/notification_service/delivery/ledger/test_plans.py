"""What a worker asks the ledger costs the same beside any number of rows: an index leads to each row."""

import re
from pathlib import Path
from typing import Any

import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage, item
from harness.ledger_work import fill
from harness.receivers import receiver
from sqlalchemy import event

from notification_service.delivery.core.answers import Failed, Rejected
from notification_service.delivery.settings import Step

_ONE = ("delivery_row_running", "delivery_row_oldest")
"""Of these indexes what is under way is read, or the first entry."""

_OF_ALL = re.compile(r"^SEARCH delivery_row .*\((job|receiver)=\?\)$")


@pytest.fixture
def plans_of(tmp_path: Path) -> dict[str, Any]:
    """The statements of some deliveries, of a refused announcement, and of the retention, each with its parameters."""
    found: dict[str, Any] = {}
    stage = LedgerStage(f"sqlite:///{tmp_path}/ledger.db", receiver("steps = announce-deliver", "retry.attempts = 1"))
    fill(stage, 100, "ended", ended_at=stage.now)
    stage.ledger.fit_steps("r")  # Its first time means to look at all heads.

    @event.listens_for(stage.ledger.database._engine, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if ("delivery_row" in statement or "delivery_key" in statement) and statement.startswith(("SELECT", "UPDATE", "DELETE")):
            found[statement] = parameters[0] if many else parameters

    stage.take(item("a", 1), item("a", 2), item("b", 1), item("b", 2))
    announcements = stage.claim(step=Step.ANNOUNCE)
    stage.finish(announcements[:1])
    stage.finish(announcements[1:], Rejected("not eligible"))
    stage.deliver_all()
    stage.take(item("d", 1), job="ended")
    stage.finish(stage.claim(step=Step.ANNOUNCE), Failed("HTTP 418"))
    stage.ledger.retry_failed("ended", with_late=False)
    stage.ledger.fit_steps("r")
    stage.ledger.end_long_pauses("r")
    stage.ledger.jobs()
    stage.ledger.gates()
    stage.ledger.waiting("r", 10)
    stage.ledger.held("r", 10)
    stage.take(item("c", 1), job="cancelled")
    stage.ledger.cancel_job("cancelled")
    stage.now += 2 * RETENTION_MS
    stage.ledger.delete_expired()
    with stage.ledger.database.read() as connection:
        plans = {each: connection.exec_driver_sql(f"explain query plan {each}", found[each]).all() for each in found}
    stage.close()
    return {statement: [each[3] for each in plan] for statement, plan in plans.items()}


def test_no_statement_looks_at_all_rows(plans_of: dict[str, Any]) -> None:
    assert len(plans_of) >= 12
    assert {statement: plan for statement, plan in plans_of.items() if any(_looks_at_all(each) for each in plan)} == {}


def _looks_at_all(step: str) -> bool:
    """Whether the step passes over all rows, those of a job, or the open ones of a receiver."""
    if _OF_ALL.search(step) and not step.split("INDEX ")[1].startswith(_ONE):
        return True
    return step.startswith(("SCAN delivery_row", "SCAN delivery_key")) and "delivery_key_held" not in step
