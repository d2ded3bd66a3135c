"""Finishing: the outcomes of calls change rows, keys, the gate and the counts of jobs, in one transaction."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, case, func, literal, select, update

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.gate import Gate, GateState, Refusals
from notification_service.delivery.core.jobs import ENDS, Claim, RetryMode, Status
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.gates import lock_gate, write_gate
from notification_service.delivery.ledger.job_rows import complete_jobs
from notification_service.delivery.ledger.tables import ERRORS, IS_HEAD, IS_OPEN, JOBS, KEYS, ROWS, chunks
from notification_service.delivery.settings import OnFailed, Receiver, Step, Steps
from resequencer.clock import Instant

CANCELLING = "cancelling"
"""In place of the step of a row that was being called when its job was cancelled: nothing claims it."""

_LONGEST_ERROR = 1_000
_STATUS_OF = {Step.VERIFY: Status.IN_PROGRESS, Step.DELIVER: Status.READY_FOR_ITEMS, Step.ANNOUNCE: Status.READY_TO_ANNOUNCE}
_MODES = {
    RetryMode.SUSPENSION: "suspensions",
    RetryMode.VERIFICATION: "verifications",
    RetryMode.BACK_OFF: "back_offs",
    RetryMode.LIMIT: "limits",
}
_CHANGED = (
    "status", "mode", "step", "is_head", "due_at", "owner", "epoch", "attempts", "questions", "limits", "error", "is_late",
    "ended_at",
)  # fmt: skip
_CHANGED_OF_KEY = ("is_announced", "held_by", "delivered", "refusals")
_COLUMNS = ("id", "job", "key", *_CHANGED)
_refusals = msgspec.json.Decoder(Refusals)
_UPDATE_ROW = update(ROWS).where(ROWS.c.id == bindparam("row")).values({each: bindparam(f"new_{each}") for each in _CHANGED})


class ClaimResult(NamedTuple):
    claim: Claim
    outcome: Outcome


class Finished(NamedTuple):
    """How many results changed their rows, how many came from former owners, and whether the gate is shut now."""

    taken: int
    refused: int
    is_shut: bool


def ready_status(steps: Steps, step: Step) -> Status:
    """Return the status of a row that can be claimed for the step and waits for nothing else."""
    return Status.READY if steps is Steps.DELIVER else _STATUS_OF[step]


def finish(database: Database, receiver: Receiver, name: str, results: Sequence[ClaimResult]) -> Finished:
    """Write the outcomes of calls to one receiver. A result whose claim is another's by now changes nothing, and is counted.

    Gate, keys, rows and jobs are locked in this order, as everywhere in the ledger.
    """
    with database.write() as connection:
        return Finishing(connection, receiver, name, database.now(connection)).finish(results)


class Finishing:
    """One transaction: it holds the gate, keys and rows that it changes, and writes them at the end."""

    def __init__(self, connection: Connection, receiver: Receiver, name: str, now: Instant) -> None:
        self.connection, self.receiver, self.name, self.now = connection, receiver, name, now
        self.gate = lock_gate(connection, name)
        self.rows: dict[int, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.errors: list[dict[str, Any]] = []
        self.freed: set[str] = set()
        """Keys that may have no head now."""

    def finish(self, results: Sequence[ClaimResult]) -> Finished:
        before = self.gate
        suspects = self._rows_of_suspects()
        self.lock({result.claim.key for result in results} | {key for _, key in suspects})
        self.load([*(result.claim.row for result in results), *(row for row, _ in suspects)])
        taken = sum(self._take(each) for each in results)
        if self.gate.state is GateState.SHUT and self.gate.suspects:
            self._reopen_suspects()
        self.write()
        if self.gate != before:
            write_gate(self.connection, self.name, self.gate)
        return Finished(taken, len(results) - taken, self.gate.state is GateState.SHUT)

    def lock(self, keys: set[str]) -> None:
        """Lock keys: until the end of the transaction nothing enters or leaves them."""
        of = select(KEYS).where(KEYS.c.receiver == self.name).order_by(KEYS.c.key).with_for_update()
        for some in chunks(sorted(keys)):
            found = self.connection.execute(of.where(KEYS.c.key.in_(some))).mappings()
            self.keys |= {each["key"]: dict(each) for each in found}

    def load(self, rows: Sequence[int]) -> None:
        asked = select(*(ROWS.c[each] for each in _COLUMNS)).order_by(ROWS.c.id).with_for_update()
        for some in chunks(sorted(set(rows))):
            found = self.connection.execute(asked.where(ROWS.c.id.in_(some))).mappings()
            self.rows |= {each["id"]: dict(each) for each in found}

    def end(self, row: dict[str, Any], status: Status, error: str | None = None) -> None:
        """End a row: the next one of its key can be its head."""
        row |= {"status": status, "mode": None, "owner": None, "is_head": False, "ended_at": self.now, "error": _cut(error)}
        self.count(row["job"], status.value)
        self.freed.add(row["key"])

    def cancel(self, row: dict[str, Any]) -> None:
        """End an open row as cancelled; one that is being called ends with its call, or is given here again after its lease."""
        if row["status"] in ENDS:
            return
        if row["owner"] is not None:
            row["step"] = CANCELLING
        else:
            self.end(row, Status.CANCELLED)

    def give_back(self, row: dict[str, Any]) -> None:
        """Let a row be claimed again whose caller has died. An older one of its key that is open again by now goes first."""
        if row["step"] == CANCELLING:
            self.end(row, Status.CANCELLED)
        row |= {"owner": None, "epoch": row["epoch"] + 1, "due_at": self.now}
        self.freed.add(row["key"])

    def fit(self, row: dict[str, Any]) -> None:
        """Let an open row wait for the step that is next for its unit."""
        if row["status"] in ENDS:
            return
        step = self._step_of(row["key"])
        status = Status.RETRY if row["status"] == Status.RETRY else ready_status(self.receiver.steps, step)
        row |= {"step": step, "status": status, "owner": None}

    def reopen(self, row: dict[str, Any], attempts: int) -> None:
        """Let an ended row be delivered again, after nothing of its key that is open and older."""
        self.count(row["job"], row["status"], -1)
        step = self._step_of(row["key"])
        row |= {"status": ready_status(self.receiver.steps, step), "step": step, "mode": None, "ended_at": None}
        row |= {"attempts": attempts, "questions": 0, "limits": 0, "due_at": self.now, "is_head": False}
        self.connection.execute(ERRORS.delete().where(ERRORS.c.row == row["id"]))
        self.errors = [each for each in self.errors if each["row"] != row["id"]]
        self.freed.add(row["key"])

    def note_error(self, row: dict[str, Any], step: Step, attempts: int, error: str) -> None:
        """Note for operators why a row was rejected or has failed, after so many calls of the step."""
        columns = {"row": row["id"], "job": row["job"], "at": self.now, "step": step.value, "attempts": attempts}
        self.errors.append({**columns, "error": _cut(error)})

    def count(self, job: str, what: str, by: int = 1) -> None:
        self.counts.setdefault(job, Counter())[what] += by

    def write(self) -> None:
        """Write what has changed, give each key its head, and complete jobs whose last row has ended."""
        if self.rows:
            changes = [_row_change(row) for row in self.rows.values()]
            # Heads go before heads come: a key has one at most.
            changes.sort(key=lambda each: bool(each["new_is_head"]))
            self.connection.execute(_UPDATE_ROW, changes)
        if self.errors:
            rows = [each["row"] for each in self.errors]
            self.connection.execute(ERRORS.delete().where(ERRORS.c.row.in_(rows)))
            self.connection.execute(ERRORS.insert(), self.errors)
        if self.keys:
            self.connection.execute(_UPDATE_KEY, [self._key_change(each) for each in self.keys.values()])
        self.promote()
        self._write_counts()

    def promote(self) -> None:
        """Make the oldest open row of each freed key its head, unless the key is held."""
        free = sorted(key for key in self.freed if key in self.keys and self.keys[key]["held_by"] is None)
        if not free:
            return
        ask = self.connection.execute
        of_keys = (ROWS.c.receiver == self.name, ROWS.c.key.in_(free))
        is_running = ROWS.c.owner.is_not(None)
        heads = {key: (row, runs) for key, row, runs in ask(select(ROWS.c.key, ROWS.c.id, is_running).where(*of_keys, IS_HEAD))}
        # One step in an index for each key: of a group by all open rows of the key would be read.
        first = select(ROWS.c.id).where(ROWS.c.receiver == KEYS.c.receiver, ROWS.c.key == KEYS.c.key, IS_OPEN)
        oldest = select(KEYS.c.key, first.order_by(ROWS.c.id).limit(1).scalar_subquery())
        found = {
            key: row for key, row in ask(oldest.where(KEYS.c.receiver == self.name, KEYS.c.key.in_(free))) if row is not None
        }
        # A call that is under way ends first.
        wanted = {key: row for key, row in found.items() if key not in heads or (heads[key][0] != row and not heads[key][1])}
        demoted = [heads[key][0] for key in wanted if key in heads]
        if demoted:
            ask(update(ROWS).where(ROWS.c.id.in_(demoted)).values(is_head=False, owner=None))
        if wanted:
            ask(_PROMOTE, [self._promotion(key, row) for key, row in wanted.items()])

    def _promotion(self, key: str, row: int) -> dict[str, Any]:
        step = self._step_of(key)
        status = ready_status(self.receiver.steps, step)
        return {"row": row, "new_step": step.value, "new_status": status.value, "now": self.now}

    def _take(self, result: ClaimResult) -> bool:
        claim, outcome = result
        row = self.rows.get(claim.row)
        if row is None or row["epoch"] != claim.epoch or row["owner"] is None:
            self.count(claim.job, "refused_results")
            return False
        if row["step"] == CANCELLING:
            self.count(claim.job, "refused_results")
            self.end(row, Status.CANCELLED)
            return False
        row["owner"] = None
        # An older row of the key that was opened again meanwhile has waited for this call.
        self.freed.add(row["key"])
        if (own := self._own_failure(row, claim, outcome)) is not None:
            self.gate = self.gate.released(claim.row)
            self._apply(row, claim, own)
            return True
        was_shut = self.gate.state is GateState.SHUT
        self.gate = self.gate.after(self.receiver, claim.row, row["attempts"], outcome, self.now, claim.step)
        is_shut = self.gate.state is GateState.SHUT
        if is_shut and not isinstance(outcome, Done | Rejected) and (was_shut or isinstance(outcome, Suspended)):
            # Nothing is held against a row while its receiver sleeps.
            self._wait(row, RetryMode.SUSPENSION, self.gate.probe_at, outcome.error)
        else:
            self._apply(row, claim, outcome)
        return True

    def _own_failure(self, row: dict[str, Any], claim: Claim, outcome: Outcome) -> Again | Failed | None:
        """Count a suspension for the unit; return the failure that it is if the unit alone meets them."""
        if not isinstance(outcome, Suspended) or outcome.alone is None:
            return None
        key = self.keys[row["key"]]
        known = key["refusals"]
        refusals = self.gate.refused(claim.step, None if known is None else _refusals.decode(known))
        key["refusals"] = msgspec.json.encode(refusals).decode()
        return outcome.alone if refusals.are_its_own else None

    def _apply(self, row: dict[str, Any], claim: Claim, outcome: Outcome) -> None:
        row["limits"] = row["limits"] + 1 if isinstance(outcome, Limited) else 0
        if isinstance(outcome, Done | Rejected):
            self.keys[row["key"]]["refusals"] = None
        if isinstance(outcome, Done):
            self._done(row, claim.step)
        elif isinstance(outcome, Limited):
            self._wait(row, RetryMode.LIMIT, self.now + outcome.after_ms, outcome.error)
        elif isinstance(outcome, Again):
            self._again(row, outcome)
        elif isinstance(outcome, Rejected):
            self._reject(row, claim, outcome)
        elif isinstance(outcome, Failed):
            self._fail(row, claim, outcome)

    def _done(self, row: dict[str, Any], step: Step) -> None:
        key, steps = self.keys[row["key"]], self.receiver.steps.all
        if step is not Step.DELIVER and step in steps:
            following = steps[steps.index(step) + 1]
            key["is_announced"] = following is Step.DELIVER
            after = self.receiver.verify.delay_ms if following is Step.VERIFY else 0
            row |= {"step": following, "status": _STATUS_OF[following], "mode": None, "due_at": self.now + after}
            return
        row["is_late"] = row["is_late"] or row["id"] < key["delivered"]
        if row["is_late"]:
            self.count(row["job"], "late")
        key["delivered"] = max(key["delivered"], row["id"])
        self.end(row, Status.PROCESSED)

    def _again(self, row: dict[str, Any], outcome: Again) -> None:
        if outcome.mode is RetryMode.VERIFICATION:
            row["questions"] += 1
        else:
            row["attempts"] += 1
        if outcome.announces:
            if outcome.mode is RetryMode.BACK_OFF:  # It was found once: the next announcement has questions of its own.
                row["questions"] = 0
            self.keys[row["key"]]["is_announced"] = False
            row["step"] = Step.ANNOUNCE
        self._wait(row, outcome.mode, self.now + outcome.after_ms, outcome.error)

    def _reject(self, row: dict[str, Any], claim: Claim, outcome: Rejected) -> None:
        self.note_error(row, claim.step, row["attempts"] + 1, outcome.error)
        self.end(row, Status.REJECTED, outcome.error)
        if claim.step is Step.ANNOUNCE:
            self._reject_others(row["key"], outcome.error)

    def _reject_others(self, key: str, error: str) -> None:
        """Reject the open rows of a unit in the database alone: there can be very many."""
        for row in self.rows.values():
            if row["key"] == key and row["status"] not in ENDS:
                self.end(row, Status.REJECTED, error)
        text = _cut(error)
        others = (ROWS.c.receiver == self.name, ROWS.c.key == key, IS_OPEN, ROWS.c.id.not_in(list(self.rows)))
        per_job = select(ROWS.c.job, func.count()).where(*others).group_by(ROWS.c.job)
        for job, found in self.connection.execute(per_job):
            self.count(job, Status.REJECTED.value, found)
        facts = (ROWS.c.id, ROWS.c.job, literal(self.now), literal(Step.ANNOUNCE.value), literal(0), literal(text))
        noted = ERRORS.insert().from_select(["row", "job", "at", "step", "attempts", "error"], select(*facts).where(*others))
        self.connection.execute(noted)
        ended = {"status": Status.REJECTED.value, "mode": None, "owner": None, "is_head": False}
        self.connection.execute(update(ROWS).where(*others).values(**ended, ended_at=self.now, error=text))

    def _fail(self, row: dict[str, Any], claim: Claim, outcome: Failed) -> None:
        attempts = row["questions"] if outcome.mode is RetryMode.VERIFICATION else row["attempts"]
        if outcome.mode is not RetryMode.VERIFICATION:
            row["attempts"] += 1
        self.note_error(row, claim.step, attempts + 1, outcome.error)
        self.end(row, Status.FAILED, outcome.error)
        if self.receiver.on_failed is OnFailed.HOLD:
            self.keys[row["key"]]["held_by"] = row["id"]

    def _wait(self, row: dict[str, Any], mode: RetryMode, due_at: Instant, error: str) -> None:
        row |= {"status": Status.RETRY, "mode": mode, "due_at": due_at, "error": _cut(error)}
        self.count(row["job"], _MODES[mode])

    def _rows_of_suspects(self) -> list[tuple[int, str]]:
        rows = [each.row for each in self.gate.suspects]
        if not rows:
            return []
        asked = select(ROWS.c.id, ROWS.c.key).where(ROWS.c.id.in_(rows))
        return [(row, key) for row, key in self.connection.execute(asked)]

    def _reopen_suspects(self) -> None:
        """Give the rows that shut the gate their attempts back: the receiver was the reason, not they.

        A job that had ended with one of them ends once more.
        """
        found = [row for each in self.gate.suspects if (row := self.rows.get(each.row)) is not None]
        jobs = JOBS.c.id.in_({row["job"] for row in found})
        cancelled = set(self.connection.scalars(select(JOBS.c.id).where(jobs, JOBS.c.cancelled_at.is_not(None))))
        failed = {row["job"] for row in found if row["status"] == Status.FAILED} - cancelled
        self.connection.execute(update(JOBS).where(JOBS.c.id.in_(failed)).values(completed_at=None))
        for suspect in self.gate.suspects:
            row = self.rows.get(suspect.row)
            if row is None or row["job"] in cancelled:
                continue
            if row["status"] == Status.FAILED:
                self.reopen(row, suspect.attempts)
                key = self.keys[row["key"]]
                key["held_by"] = None if key["held_by"] == row["id"] else key["held_by"]
            elif row["status"] not in ENDS:
                row["attempts"] = min(row["attempts"], suspect.attempts)
            if row["status"] not in ENDS and row["owner"] is None:
                self._wait(row, RetryMode.SUSPENSION, self.gate.probe_at, self.gate.reason)
        self.gate = _without_suspects(self.gate)

    def _step_of(self, key: str) -> Step:
        return Step.DELIVER if self.keys[key]["is_announced"] else self.receiver.steps.first

    def _key_change(self, key: dict[str, Any]) -> dict[str, Any]:
        return {"of": self.name, "this": key["key"], **{f"new_{name}": key[name] for name in _CHANGED_OF_KEY}}

    def _write_counts(self) -> None:
        for job in sorted(self.counts):
            changes = {name: JOBS.c[name] + by for name, by in self.counts[job].items() if by}
            if changes:
                self.connection.execute(update(JOBS).where(JOBS.c.id == job).values(**changes))
        complete_jobs(self.connection, sorted(self.counts), self.now)


_UPDATE_KEY = (
    update(KEYS)
    .where(KEYS.c.receiver == bindparam("of"), KEYS.c.key == bindparam("this"))
    .values({each: bindparam(f"new_{each}") for each in _CHANGED_OF_KEY})
)
_PROMOTE = (
    update(ROWS)
    .where(ROWS.c.id == bindparam("row"))
    .values(
        is_head=True,
        step=bindparam("new_step"),
        # A row that was given back while its receiver sleeps waits on.
        status=case((ROWS.c.status == Status.RETRY.value, ROWS.c.status), else_=bindparam("new_status")),
        due_at=case(
            ((ROWS.c.status == Status.RETRY.value) & (ROWS.c.due_at > bindparam("now")), ROWS.c.due_at), else_=bindparam("now")
        ),
    )
)


def _without_suspects(gate: Gate) -> Gate:
    return Gate(**{name: getattr(gate, name) for name in gate.__struct_fields__ if name != "suspects"})


def _row_change(row: dict[str, Any]) -> dict[str, Any]:
    return {"row": row["id"], **{f"new_{name}": _plain(row[name]) for name in _CHANGED}}


def _plain(value: Any) -> Any:
    """Return an enum's text: the driver of PostgreSQL writes the name of a member."""
    return value.value if isinstance(value, StrEnum) else value


def _cut(text: str | None) -> str | None:
    return None if text is None else text.replace("\x00", "�")[:_LONGEST_ERROR]
