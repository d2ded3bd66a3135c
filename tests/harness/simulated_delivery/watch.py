"""The promises of delivery that hold at every step: what changed in the ledger is compared with what may change."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from harness.simulated_delivery.gate_watch import GateWatch
from harness.simulated_delivery.plan import LIVE, Plan
from harness.simulated_delivery.seen import ENDED, Eye, JobCounts, Row, Seen
from harness.wild_clock import WildClock

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Rejected
from notification_service.delivery.core.gate import GateState
from notification_service.delivery.core.jobs import Claim, RetryMode
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.settings import OnFailed, Step


class PromiseBroken(AssertionError):
    """The text says which promise."""


class Watch:
    """`look` is called after each transaction, whether it was committed or not.

    `deciding` are the units that an operator releases at the moment, `retrying` the job that one delivers again, and whether with
    rows that come late. `late_wanted` are the jobs of which that was ever ordered. `gone` are rows that retention deleted.
    `events` are all that ever were, by their numbers, each with the instant at which it was seen first.
    """

    def __init__(self, file: Path, plan: Plan, clock: WildClock) -> None:
        self._eye, self._plan, self._receiver = Eye(file), plan, plan.receiver
        self.seen: Seen = self._eye.look()
        self.deciding: set[str] = set()
        self.retrying: tuple[str, bool] | None = None
        self.late_wanted: set[str] = set()
        self.gone: dict[int, Row] = {}
        self.gone_jobs: dict[str, JobCounts] = {}
        self.events: dict[int, int] = {}
        self.is_paused = False
        """Whether an operator has paused the receiver."""
        self._gate = GateWatch(plan.receiver)
        self._leases: dict[int, int] = {}
        self._not_before: dict[int, int] = {}
        self._holding: dict[str, int] = {}
        self._may_be_late: set[int] = set()
        self._running_behind: dict[int, set[int]] = {}
        """Of a row that was opened again: later ones of its unit whose calls were under way."""
        self._calls_at: list[int] = []
        self._clock, self._misled_at = clock, 0
        self._ended_at: dict[int, int] = {}
        """When each row ended, whatever the wall clock said then."""

    def close(self) -> None:
        self._eye.close()

    def hurry(self, row: int | None) -> None:
        """Note that a row may be called now, and a shut gate probed; None: whichever row waits first."""
        self._gate.probe_from = 0
        self._not_before = {} if row is None else {each: at for each, at in self._not_before.items() if each != row}

    def called(self, claim: Claim) -> None:
        row = self.row(claim.row)
        if row.notification_id != claim.notification_id:
            _broken(f"row {row.id} is called for under another idempotency key, {claim.notification_id}")

    def row(self, number: int) -> Row:
        return self.seen.rows.get(number) or self.gone[number]

    def all_rows(self) -> Iterable[Row]:
        return (*self.gone.values(), *self.seen.rows.values())

    def look(self, now: int, results: Sequence[ClaimResult] = ()) -> None:
        """Compare the ledger with what it was. `results` are what a worker has just tried to write."""
        before = self.seen
        after = self._eye.look()
        self.seen = after
        self._note_gone(before, after, now)
        for job in after.jobs.values():
            self._check_counts(job, after)
        self._check_heads(after)
        self._check_completions(before, after)
        self._check_events(before, after, now)
        taken = [each for each in results if _is_taken(each, before, after)]
        for row in after.rows.values():
            if row.owner is None:
                self._leases.pop(row.id, None)
            if not row.is_open:
                self._ended_at.setdefault(row.id, now)
            old = before.rows.get(row.id)
            if old is not None and not old.is_open and row.is_open:
                del self._ended_at[row.id]
                self._note_reopened(row, before, now)
        self._check_ends(before, after, self._hear(before, after, taken, now))
        if self._clock.misleads:
            self._misled_at, self._gate.probe_from = now, 0
        self._check_reopened_jobs(before, after)
        self._note_holds(before, after)
        known = {row.id: row.epoch for row in before.rows.values()}
        claimed = [row for row in after.rows.values() if row.owner is not None and row.epoch > known.get(row.id, 0)]
        if claimed:
            self._check_claims(claimed, before, now)

    def _note_gone(self, before: Seen, after: Seen, now: int) -> None:
        for row in before.rows.values():
            if row.id in after.rows:
                continue
            job = before.jobs[row.job]
            since = min(now, job.caught_up_at) if job.is_live else now
            ended_at = self._ended_at.get(row.id, now)
            if ended_at >= since - self._plan.retention_ms or not (job.is_live or job.completed_at):
                _broken(f"row {row.id} is deleted too early")
            self.gone[row.id] = row
            for key in [key for key, by in self._holding.items() if by == row.id]:
                del self._holding[key]
        self._gate.forgot({row.key for row in self.gone.values()} - {row.key for row in after.rows.values()})
        for job in before.jobs.values():
            if job.id not in after.jobs:
                self.gone_jobs[job.id] = job

    def _check_counts(self, job: JobCounts, after: Seen) -> None:
        rows = [row for row in self.all_rows() if row.job == job.id]
        found = Counter(row.status for row in rows)
        counts = {status: getattr(job, status) for status in ENDED}
        if counts != {status: found[status] for status in ENDED} or job.ingested != len(rows):
            _broken(f"job {job.id} counts {counts} of {job.ingested}, and has {dict(found)}")
        read, source = after.positions.get(job.id, 0), self._plan.sources[job.id]
        if job.read != read or job.read != job.duplicates + job.not_selected + job.ingested:
            _broken(f"job {job.id} has read {read} records and counts {job}")
        if {row.dedup for row in rows} != source.dedups(read):
            _broken(f"job {job.id} lacks rows of the {read} records that it has read")

    def _check_heads(self, after: Seen) -> None:
        heads = Counter(row.key for row in after.rows.values() if row.is_head)
        waiting = {row.key for row in after.rows.values() if row.is_open}
        for key in waiting - set(after.held):
            if heads[key] != 1:
                _broken(f"unit {key} waits and has {heads[key]} heads")
        if wrong := [row.id for row in after.rows.values() if row.is_head and not row.is_open]:
            _broken(f"rows {wrong} have ended and are heads")

    def _check_completions(self, before: Seen, after: Seen) -> None:
        for job in after.jobs.values():
            old = before.jobs.get(job.id)
            was_complete = old is not None and old.completed_at is not None
            is_new = job.completed_at is not None and not was_complete
            if job.completions != (0 if old is None else old.completions) + is_new:
                _broken(f"job {job.id} counts {job.completions} completions")
            if is_new and job.cancelled_at is None and (job.is_live or job.read != len(self._plan.sources[job.id].records)):
                _broken(f"job {job.id} is complete after {job.read} records, before it has read all")
            if is_new and job.cancelled_at is None and job.ingested != job.expected:
                _broken(f"job {job.id} is complete with {job.ingested} of {job.expected} rows")
            if job.completed_at is not None and any(row.is_open for row in after.rows.values() if row.job == job.id):
                _broken(f"job {job.id} is complete and has open rows")

    def _check_events(self, before: Seen, after: Seen, now: int) -> None:
        for number in after.events:
            self.events.setdefault(number, now)
        runs = sum(job.completions for job in (*after.jobs.values(), *self.gone_jobs.values()))
        if list(self.events) != list(range(1, runs + 1)):
            _broken(f"the events of {runs} ends of jobs have the numbers {list(self.events)}")
        for number in set(before.events) - set(after.events):
            if number > before.published or self.events[number] >= now - self._plan.retention_ms:
                _broken(f"event {number} is deleted too early")

    def _check_reopened_jobs(self, before: Seen, after: Seen) -> None:
        """Check that a job is open again only because it is repaired, or because rows of it shut the gate."""
        allowed = {before.rows[row].job for row in self._gate.given_back if row in before.rows}
        allowed |= {self.retrying[0]} if self.retrying is not None else set()
        for job in after.jobs.values():
            was_complete = job.id in before.jobs and before.jobs[job.id].completed_at is not None
            if was_complete and job.completed_at is None and not _repairs(job.id, before, after) and job.id not in allowed:
                _broken(f"job {job.id} was complete and is open again")

    def _check_ends(self, before: Seen, after: Seen, taken: Sequence[ClaimResult]) -> None:
        """Check that each row that has ended has its reason."""
        outcomes = {each.claim.row: each for each in taken}
        unwanted = {each.claim.key for each in taken if isinstance(each.outcome, Rejected) and each.claim.step is Step.ANNOUNCE}
        for row in after.rows.values():
            old = before.rows.get(row.id)
            if old is None or row.is_open or row.status == old.status:
                continue
            result = outcomes.get(row.id)
            outcome = None if result is None else result.outcome
            fits = {
                "processed": isinstance(outcome, Done) and result is not None and result.claim.step is Step.DELIVER,
                "rejected": isinstance(outcome, Rejected) or row.key in unwanted,
                "failed": isinstance(outcome, Failed),
                "cancelled": after.jobs[row.job].cancelled_at is not None,
            }
            if not old.is_open or not fits[row.status]:
                _broken(f"row {row.id} was {old.status} and is {row.status} after {outcome}")
            if row.status == "processed" and bool(row.is_late) != any(each.status == "processed" for each in self._later(row)):
                _broken(f"row {row.id} is {'' if row.is_late else 'not '}marked late")

    def _later(self, row: Row) -> list[Row]:
        return [each for each in self.all_rows() if each.key == row.key and each.id > row.id]

    def _note_reopened(self, row: Row, before: Seen, now: int) -> None:
        if row.status == "cancelled":
            _broken(f"row {row.id} was cancelled and is open again")
        self._not_before.pop(row.id, None)
        self._holding = {key: by for key, by in self._holding.items() if by != row.id}
        later = self._later(row)
        is_repaired_late = row.job in self.late_wanted and "late" in _repairs(row.job, before, self.seen)
        if self.retrying == (row.job, True) or is_repaired_late:
            self._may_be_late.add(row.id)
        elif row.id not in self._may_be_late:
            known = self._running_behind.get(row.id, set())
            if any(each.status == "processed" and each.id not in known for each in later):
                _broken(f"row {row.id} is open again behind one that was delivered")
        running = {each.id for each in later if self._leases.get(each.id, 0) > now}
        self._running_behind.setdefault(row.id, set()).update(running)

    def _hear(self, before: Seen, after: Seen, taken: Sequence[ClaimResult], now: int) -> list[ClaimResult]:
        """Follow the outcomes, and compare what they make of the gate and of attempts; return what they mean."""
        gate = self._gate
        meant: list[ClaimResult] = []
        gate.given_back = {}
        uncounted: list[int] = []
        if gate.is_shut and not taken and after.gate.state is GateState.OPEN:
            gate.opened()
        for heard in taken:
            old, new = before.rows[heard.claim.row], after.rows[heard.claim.row]
            was_shut = gate.is_shut
            result = heard._replace(outcome=gate.meaning(heard))
            meant.append(result)
            is_own = result.outcome is not heard.outcome
            if not is_own:
                gate.heard(result, old.attempts, now)
            if self._check_attempts(result, old, new, is_shut=was_shut and gate.is_shut and not is_own):
                uncounted.append(new.id)
            self._note_wait(result, now, is_shut=gate.is_shut and not is_own)
            if new.status != "processed":
                for behind in self._running_behind.values():
                    behind.discard(new.id)
        if gate.is_shut != (after.gate.state is GateState.SHUT):
            _broken(f"the gate is {after.gate.state}, which is wrong")
        if missing := set(uncounted) - set(gate.given_back):
            _broken(f"an attempt of rows {sorted(missing)} is not counted")
        for row, attempts in gate.given_back.items():
            self._check_given_back(row, attempts, before, after)
        return meant

    def _check_attempts(self, result: ClaimResult, old: Row, new: Row, *, is_shut: bool) -> bool:
        """Check that no attempt is counted that must not be; return whether one is missing."""
        outcome = result.outcome
        counts = isinstance(outcome, Failed) and outcome.mode is not RetryMode.VERIFICATION
        counts = counts or (isinstance(outcome, Again) and outcome.mode is RetryMode.BACK_OFF)
        if is_shut and new.status == "failed":
            _broken(f"row {new.id} fails while the gate is shut")
        if new.attempts > old.attempts + (counts and not is_shut):
            _broken(f"row {new.id} had {old.attempts} attempts and has {new.attempts} after {outcome}")
        return counts and not self._gate.is_shut and new.attempts != old.attempts + 1

    def _check_given_back(self, number: int, attempts: int, before: Seen, after: Seen) -> None:
        self._not_before.pop(number, None)
        row = after.rows.get(number)
        if row is None or before.jobs[row.job].cancelled_at is not None:
            return
        if row.status == "failed" or (row.is_open and row.attempts > attempts):
            _broken(f"row {number} is one of five that shut the gate; it is {row.status} with {row.attempts} attempts")

    def _note_wait(self, result: ClaimResult, now: int, *, is_shut: bool) -> None:
        claim, outcome = result
        wait = None
        if isinstance(outcome, Again | Limited) and not is_shut:
            wait = outcome.after_ms
        elif isinstance(outcome, Done) and claim.step is Step.ANNOUNCE and Step.VERIFY in self._receiver.steps.all:
            wait = self._receiver.verify.delay_ms
        self._not_before.pop(claim.row, None)
        if wait is not None and not self._clock.misleads:
            self._not_before[claim.row] = now + wait

    def _note_holds(self, before: Seen, after: Seen) -> None:
        for unit in self.deciding - set(after.held):
            self._holding.pop(unit, None)
        if self._receiver.on_failed is OnFailed.HOLD:
            for row in after.rows.values():
                if row.status == "failed" and row.id in before.rows and before.rows[row.id].is_open:
                    self._holding[row.key] = row.id

    def _check_claims(self, claimed: Sequence[Row], before: Seen, now: int) -> None:
        until = now + 2 * self._receiver.timeout_ms + 10_000
        if self.is_paused:
            _broken(f"rows {[each.id for each in claimed]} are claimed, and the receiver is paused")
        if self._gate.is_shut:
            self._check_probe(claimed, before, until, now)
        for row in claimed:
            self._check_claim(row, before, now)
            self._leases[row.id] = until
        running = sum(each > now for each in self._leases.values())
        most = self._receiver.concurrency if self._gate.is_shut else max(1, int(before.gate.limit or self._receiver.concurrency))
        if running > min(most, self._receiver.concurrency) and not self._gate.is_shut:
            _broken(f"{running} calls are under way, and the gate permits {most}")
        self._calls_at += [now] * len(claimed)
        rate = self._receiver.rate
        if (
            rate is not None
            and self._misled_at < now - 10_000
            and sum(each > now - 10_000 for each in self._calls_at) > 11 * rate + 1
        ):
            _broken(f"more than {rate} calls per second")

    def _check_claim(self, row: Row, before: Seen, now: int) -> None:
        if not before.rows[row.id].is_open:
            _broken(f"row {row.id} is {before.rows[row.id].status} and is claimed")
        if self._leases.get(row.id, 0) > now:
            _broken(f"row {row.id} is claimed while another has it")
        if before.jobs[row.job].cancelled_at is not None:
            _broken(f"row {row.id} of the cancelled job {row.job} is claimed")
        if row.key in self._holding:
            _broken(f"row {row.id} is claimed while row {self._holding[row.key]} holds its unit")
        if self._not_before.get(row.id, 0) > now and not self._clock.misleads:
            _broken(f"row {row.id} is claimed {self._not_before[row.id] - now} ms too early")
        for each in self.seen.rows.values():
            if each.key == row.key and each.id < row.id and each.is_open and row.id not in self._running_behind.get(each.id, ()):
                _broken(f"row {row.id} overtakes row {each.id}")
        overtaken = {each.id for each in self._later(row) if each.status == "processed"}
        if row.id not in self._may_be_late and overtaken - self._running_behind.get(row.id, set()):
            _broken(f"row {row.id} is claimed behind {overtaken}, which are delivered")

    def _check_probe(self, claimed: Sequence[Row], before: Seen, until: int, now: int) -> None:
        gate, probe = self._gate, before.rows.get(self._gate.probe or 0)
        # The result of one whose job was cancelled meanwhile says nothing.
        is_probed = probe is not None and probe.owner is not None and gate.probe_until > now
        if len(claimed) > 1 or is_probed:
            _broken(f"rows {[each.id for each in claimed]} are claimed in a shut gate that has a probe or needs one")
        if now < gate.probe_from and not self._clock.misleads:
            _broken(f"the gate is probed {gate.probe_from - now} ms too early")
        gate.probed(claimed[0].id, until)

    def check_end(self) -> None:
        """Check that nothing waits any more."""
        if waiting := [row.id for row in self.seen.rows.values() if row.is_open or row.owner is not None]:
            _broken(f"rows {waiting} wait for ever")
        for job in self.seen.jobs.values():
            if job.id != LIVE and job.completed_at is None:
                _broken(f"job {job.id} never ends")
            if job.repair is not None:
                _broken(f"the repair of job {job.id} never ends")
        if self.seen.held:
            _broken(f"units {sorted(self.seen.held)} are held for ever")


def _is_taken(result: ClaimResult, before: Seen, after: Seen) -> bool:
    """Return whether the result was the one of the row's claim, and was committed."""
    row = before.rows.get(result.claim.row)
    if row is None or row.owner is None or row.epoch != result.claim.epoch:
        return False
    return after.rows[row.id].owner is None and after.rows[row.id].status != "cancelled"


def _repairs(job: str, before: Seen, after: Seen) -> set[str]:
    """Return the repairs of a job that were under way before or after some transactions."""
    return {found for seen in (before, after) if job in seen.jobs and (found := seen.jobs[job].repair) is not None}


def _broken(text: str) -> NoReturn:
    raise PromiseBroken(text)
