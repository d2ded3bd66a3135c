"""Finds jobs by their names, and says what is wrong with an order for one."""

from sqlalchemy import Connection, RowMapping, select

from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.tables import JOBS
from notification_service.delivery.settings import Receiver

SCHEDULE = "schedule"
"""The source of the job of a schedule, which is no feed."""


def get_job(connection: Connection, job: str) -> RowMapping:
    """Return the row of the job.

    Raises:
        JobRefused: There is none.
    """
    # PostgreSQL takes no NUL, not even to look for it.
    found = None if "\x00" in job else connection.execute(select(JOBS).where(JOBS.c.id == job)).mappings().first()
    if found is None:
        raise JobRefused(f"there is no job {job}; `resequencer delivery jobs` lists them")
    return found


def check_receiver(receivers: dict[str, Receiver], job: RowMapping) -> None:
    """Raise JobRefused if the receiver of the job is not configured."""
    if job["receiver"] not in receivers:
        remedy = "configure it again, with live = false if nothing new shall be delivered to it"
        raise JobRefused(f"the receiver {job['receiver']} of {job['id']} is not configured with policy = ledger: {remedy}")
