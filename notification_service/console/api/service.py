"""The service and its workers: reports, and what an operator may ask of a worker."""

from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console, identity_of
from notification_service.console.service_answer import ServiceAnswer, WorkerAnswer, service_answer, worker_answers


class ServiceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `peers` the answer has the workers of the group's other machines, too."""

    peers: Literal["true", "false"] = "false"


class WorkersAnswer(msgspec.Struct, frozen=True):
    """The workers of this machine by slot; none if no service has reported yet."""

    workers: tuple[WorkerAnswer, ...]


class OneWorker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker in this slot."""

    slot: Annotated[int, Meta(ge=0, le=999)]


class Restarted(msgspec.Struct, frozen=True):
    """The worker in this slot was asked to end; the supervisor starts it again."""

    slot: int


class Threads(msgspec.Struct, frozen=True):
    """What the threads of the worker in this slot do: Python's stacks, as text."""

    slot: int
    threads: str


class TokenAnswer(msgspec.Struct, frozen=True):
    """A token for one request that changes something, for the header `x-form-token`; valid for two hours."""

    token: str


def service_operations(console: Console) -> list[Operation]:
    sources = console.sources

    def service(request: Request, query: ServiceQuery) -> ServiceAnswer:
        del request
        peers = console.peers.look() if query.peers == "true" else None
        return service_answer(sources.find_report(), sources.find_served(), peers)

    def workers(request: Request, query: msgspec.Struct) -> WorkersAnswer:
        del request, query
        return WorkersAnswer(worker_answers(sources.find_report()))

    def restart(request: Request, worker: OneWorker) -> Restarted:
        console.audit_log.note(request, "worker.restart", slot=worker.slot)
        if not sources.workers.restart(worker.slot):
            raise HTTPException(
                HTTPStatus.CONFLICT, f"worker {worker.slot} does not run here, would not be started again, or was asked already"
            )
        return Restarted(worker.slot)

    def threads(request: Request, worker: OneWorker) -> Threads:
        console.audit_log.note(request, "worker.threads", slot=worker.slot)
        dump = sources.workers.dump_threads(worker.slot)
        if dump is None:
            raise HTTPException(HTTPStatus.CONFLICT, f"worker {worker.slot} does not run on this machine, or did not answer")
        return Threads(worker.slot, dump)

    def token(request: Request, query: msgspec.Struct) -> TokenAnswer:
        del query
        return TokenAnswer(console.tokens.make(identity_of(request)))

    return [
        Operation("/service", "service", service, ServiceAnswer, "The service as `status` reports it", ServiceQuery),
        Operation("/workers", "workers", workers, WorkersAnswer, "The workers of this machine"),
        change_of("/workers/restart", "restart-worker", restart, Restarted, "Let a worker end and start again", OneWorker),
        change_of("/workers/threads", "worker-threads", threads, Threads, "What the threads of a worker do now", OneWorker),
        Operation("/token", "token", token, TokenAnswer, "A token for one request that changes something"),
    ]
