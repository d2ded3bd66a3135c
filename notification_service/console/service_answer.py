"""The service and its workers as the API tells them, and as the consoles of a group tell them to each other."""

import msgspec

from notification_service.status.report import StatusReport
from notification_service.status.service_report import NOT_RUNNING, ServedStatus, ServiceReport


class WorkerAnswer(msgspec.Struct, frozen=True):
    """A worker's present state, such as `ready` or `stale`, and its last report."""

    state: str
    report: StatusReport


class PeerAnswer(msgspec.Struct, frozen=True):
    """What the console of another machine said last: its service's state and workers, and when (`as_of`, null: never).

    If it is not answering, `problem` says why.
    """

    url: str
    is_answering: bool
    state: str | None
    as_of: str | None
    workers: tuple[WorkerAnswer, ...]
    problem: str | None = None


class ServiceAnswer(msgspec.Struct, frozen=True):
    """The present state of the service; `report` combines the reports of its `workers`, as `status --json` does.

    `report` is null if no service has reported yet. `peers` are the group's other machines, null unless they were asked for.
    """

    state: str
    report: StatusReport | None
    workers: tuple[WorkerAnswer, ...]
    served: ServedStatus
    peers: tuple[PeerAnswer, ...] | None = None


def service_answer(
    service: ServiceReport | None, served: ServedStatus, peers: tuple[PeerAnswer, ...] | None = None
) -> ServiceAnswer:
    if service is None:
        return ServiceAnswer(NOT_RUNNING, None, (), served, peers)
    return ServiceAnswer(service.state, service.whole, worker_answers(service), served, peers)


def worker_answers(service: ServiceReport | None) -> tuple[WorkerAnswer, ...]:
    return () if service is None else tuple(WorkerAnswer(state, report) for state, report in service.workers)
