"""The ledger as the delivery workers and the commands use it."""

from collections.abc import Sequence
from threading import Lock

import msgspec

from notification_service.delivery.core.backlog import BacklogTrend
from notification_service.delivery.core.jobs import Delivery, ErrorFilter, GateReport, Job, JobState, RowError, WaitingRow
from notification_service.delivery.ledger import (
    claims,
    finishing,
    intake,
    job_orders,
    jobs,
    receiver_orders,
    services,
    upkeep,
)
from notification_service.delivery.ledger.claims import Claimed
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import ClaimResult, Finished
from notification_service.delivery.ledger.intake import Intake, Portion
from notification_service.delivery.ledger.jobs import Former
from notification_service.delivery.ledger.services import Service, ServiceEvents
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import Unchanged


class Ledger:
    """Every method is one transaction or one after the other; any number of processes may use the same database.

    Raises:
        LedgerUnavailable: Of each method: the database does not answer.
    """

    def __init__(
        self,
        database: Database,
        receivers: Sequence[tuple[str, Receiver]],
        retention_ms: int,
        stalled_after_ms: int,
        service: Service = Service(),  # noqa: B008 - It never changes.
    ) -> None:
        self.database = database
        self.service = service
        self.receivers = dict(receivers)
        self._retention_ms = retention_ms
        self._stalled_after_ms = stalled_after_ms
        self._claims = {name: self._unchanged() for name in self.receivers}
        self._pauses = {name: self._unchanged() for name in self.receivers}
        self._trends = {name: BacklogTrend() for name in self.receivers}
        self._rights = self._unchanged()
        self._homes = self._unchanged()
        self._entered_ms: int | None = None

    def _unchanged(self) -> Unchanged:
        return Unchanged(self.database.clock.passed, Lock())

    def claim(self, receiver: str, step: Step, owner: str, wanted: int) -> Claimed:
        return claims.claim(self.database, self.receivers[receiver], receiver, step, owner, wanted, self._claims[receiver])

    def finish(self, receiver: str, results: Sequence[ClaimResult]) -> Finished:
        return finishing.finish(self.database, self.receivers[receiver], receiver, results)

    def open_intake(self, job: str, owner: str, known: Intake | None = None) -> Intake | None:
        return intake.open_intake(self.database, job, owner, self._rights, known)

    def close_intake(self, opened: Intake) -> None:
        intake.close_intake(self.database, opened)

    def take_in(self, opened: Intake, receiver: str, portion: Portion) -> int:
        return intake.take_in(self.database, opened, self.receivers[receiver], receiver, portion)

    def ensure_live(self, receiver: str, source: str, former: Former | None = None) -> str:
        """Return the job that never ends, of this receiver and source.

        Raises:
            RunDirectoryCopied: The source is read from another run directory with the same id.
        """
        self.enter()
        return jobs.ensure_live(self.database, receiver, source, self.service.id, former)

    def schedule_job(self, schedule: str, receiver: str) -> str:
        return jobs.schedule_job(self.database, schedule, receiver, self.service.id)

    def find_progress(self, job: str) -> str | None:
        return intake.find_progress(self.database, job)

    def count_open(self, job: str) -> int:
        return jobs.count_open(self.database, job)

    def start_job(self, job: str, receiver: str, source: str, by: str) -> bool:
        return jobs.start_job(self.database, job, receiver, source, by, self.service.id)

    def open_jobs(self, receiver: str) -> list[tuple[str, str]]:
        return jobs.open_jobs(self.database, receiver)

    def jobs(self) -> list[Job]:
        return [self._shown(each) for each in jobs.list_jobs(self.database, self._stalled_after_ms)]

    def find_job(self, job: str) -> Job | None:
        found = next(iter(jobs.list_jobs(self.database, self._stalled_after_ms, job)), None)
        return None if found is None else self._shown(found)

    def _shown(self, job: Job) -> Job:
        """Return the job. What a live job of a receiver that is not live any more has taken is delivered, but nothing stalls."""
        is_read = not job.is_live or (job.receiver in self.receivers and self.receivers[job.receiver].is_live)
        return job if is_read or job.state is not JobState.STALLED else msgspec.structs.replace(job, state=JobState.ACTIVE)

    def accept_loss(self, job: str, by: str, because: str) -> str:
        return intake.accept_loss(self.database, job, by, because)

    def cancel_job(self, job: str) -> None:
        job_orders.cancel_job(self.database, self.receivers, job)

    def go_on(self, receiver: str) -> None:
        """End what remains of orders to cancel or to repair jobs, if a process ended in the midst."""
        for job in job_orders.cancelled_jobs(self.database, receiver):
            job_orders.cancel_rows(self.database, self.receivers, job)
        for job in job_orders.jobs_in_repair(self.database, receiver):
            job_orders.go_on_repairing(self.database, self.receivers, job)

    def retry_failed(self, job: str, *, with_late: bool) -> tuple[int, int]:
        return job_orders.retry_failed(self.database, self.receivers, job, with_late=with_late)

    def fit_steps(self, receiver: str) -> int:
        return upkeep.fit_steps(self.database, self.receivers[receiver], receiver)

    def release_unit(self, receiver: str, unit: str) -> None:
        receiver_orders.release_unit(self.database, self.receivers, receiver, unit)

    def open_gate(self, receiver: str) -> None:
        receiver_orders.open_gate(self.database, receiver)

    def pause(self, receiver: str, by: str, because: str) -> None:
        receiver_orders.pause_receiver(self.database, receiver, by, because)

    def resume(self, receiver: str) -> None:
        receiver_orders.resume_receiver(self.database, receiver)

    def retry_now(self, receiver: str, row: int | None) -> int:
        return receiver_orders.retry_now(self.database, receiver, row)

    def errors(self, job: str, limit: int, only: ErrorFilter = ErrorFilter()) -> list[RowError]:  # noqa: B008 - It never changes.
        return jobs.list_errors(self.database, job, limit, only)

    def count_failed(self, job: str, only: ErrorFilter, *, with_late: bool) -> int:
        return job_orders.count_failed(self.database, job, only, with_late=with_late)

    def retry_chosen(self, job: str, only: ErrorFilter, *, with_late: bool) -> int:
        return job_orders.retry_chosen(self.database, self.receivers, job, only, with_late=with_late)

    def deliveries(self, text: str, limit: int) -> list[Delivery]:
        """What is known of the notifications of a unit, or of one notification by its id."""
        return jobs.list_deliveries(self.database, list(self.receivers), text, limit)

    def waiting(self, receiver: str, limit: int) -> list[WaitingRow]:
        return jobs.list_waiting(self.database, receiver, limit)

    def held(self, receiver: str, limit: int) -> list[tuple[str, int]]:
        return jobs.list_held(self.database, receiver, limit)

    def gates(self) -> list[GateReport]:
        passed = self.database.clock.passed()

        def rate_of(receiver: str, count: int) -> float | None:
            return self._trends[receiver].see(count, passed)

        return jobs.list_gates(self.database, list(self.receivers.items()), self._stalled_after_ms, rate_of)

    @property
    def events(self) -> ServiceEvents:
        """The ends of the jobs of this service."""
        return ServiceEvents(self.database, self.service.id, self._retention_ms, self.enter)

    def enter(self) -> None:
        """Note that this service uses the ledger, now and then.

        Raises:
            RunDirectoryCopied: Another run directory with the same id does.
        """
        passed = self.database.clock.passed()
        if self._entered_ms is None or passed - self._entered_ms >= services.RENEWED_MS:
            services.enter(self.database, self.service, self._homes)
            self._entered_ms = passed

    def end_long_pauses(self, receiver: str) -> int:
        return upkeep.end_long_pauses(self.database, self.receivers[receiver], receiver, self._pauses[receiver])

    def delete_expired(self) -> int:
        """Delete some of what ended long ago; what ended in the future, by a clock that was ahead, ends now. Return how many."""
        return upkeep.date_back(self.database) or upkeep.delete_expired(self.database, self._retention_ms)

    def close(self) -> None:
        self.database.close()
