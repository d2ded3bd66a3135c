"""What the service of a run directory serves by HTTP now."""

from pathlib import Path

from notification_service.status.service_report import Served, ServedStatus, console_file, probes_file
from notification_service.supervision.locks import RunningService


def find_served(run_directory: Path, service: RunningService) -> ServedStatus:
    """Return the addresses of the console, the metrics and the probes, and why one of them is missing."""
    if service.process_id is None:
        return ServedStatus()
    console, probes = (file(run_directory).find(service.process_id) for file in (console_file, probes_file))
    notes = (*_note("the console does not run", console), *_note("the health probes are not served", probes))
    return ServedStatus({**(console.urls if console else {}), **(probes.urls if probes else {})}, notes)


def _note(what: str, served: Served | None) -> tuple[str, ...]:
    """With addresses, only a part is missing, and the problem says which."""
    if served is None or served.problem is None:
        return ()
    return (served.problem,) if served.urls else (f"{what}: {served.problem}",)
