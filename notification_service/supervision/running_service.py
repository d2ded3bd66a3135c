"""The service of a run directory as it is now: its reports, if they are its own, and whether it runs."""

from pathlib import Path
from typing import NamedTuple

from notification_service.status.service_report import ServiceReport, find_reports, service_report, state_of
from notification_service.supervision.run_lock import UNKNOWN, find_holder
from resequencer.clock import Instant


class RunningService(NamedTuple):
    """`report` is None if the service has not reported yet. `holder` is its process id as text, None if it does not run."""

    state: str
    report: ServiceReport | None
    holder: str | None


def find_service(run_directory: Path, now: Instant) -> RunningService:
    """Read who holds the run directory before the reports: then a report is not an older service's."""
    holder = find_holder(run_directory)
    reports = find_reports(run_directory)
    if reports and holder is not None and holder not in (str(reports[0].process_id), UNKNOWN):
        reports = ()
    if not reports:
        return RunningService(state_of(None, now, is_running=holder is not None), None, holder)
    report = service_report(reports, now, is_running=holder is not None)
    return RunningService(report.state, report, holder)
