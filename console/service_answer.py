"""The service and its workers as the API tells them, and as the consoles of a group tell them to each other."""

import msgspec

from status.report import StatusReport
from status.served import ServedStatus
from status.service_report import NOT_RUNNING, ServiceReport


class WorkerAnswer(msgspec.Struct, frozen=True):
    """A worker's present state, such as `ready` or `stale`, and its last report."""

    state: str
    report: StatusReport


class ServiceAnswer(msgspec.Struct, frozen=True):
    """The present state of the service; `report` combines the reports of its `workers`, as `status --json` does.

    `report` is null if no service has reported yet.
    """

    state: str
    report: StatusReport | None
    workers: tuple[WorkerAnswer, ...]
    served: ServedStatus


def service_answer(service: ServiceReport | None, served: ServedStatus) -> ServiceAnswer:
    if service is None:
        return ServiceAnswer(NOT_RUNNING, None, (), served)
    return ServiceAnswer(service.state, service.whole, worker_answers(service), served)


def worker_answers(service: ServiceReport | None) -> tuple[WorkerAnswer, ...]:
    return () if service is None else tuple(WorkerAnswer(state, report) for state, report in service.workers)
