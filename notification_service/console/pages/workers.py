"""The workers: state, exits, and what an operator may ask of one."""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console


def worker_routes(console: Console) -> list[Route]:
    def workers(request: Request) -> Response:
        return console.page(request, "workers.html", service=console.sources.find_report(), peers=console.peers.look())

    def restart(request: Request) -> Response:
        slot = _slot(request)
        console.audit_log.note(request, "worker.restart", slot=slot)
        if not console.sources.workers.restart(slot):
            raise HTTPException(
                HTTPStatus.CONFLICT, f"worker {slot} does not run here, would not be started again, or was asked already"
            )
        return RedirectResponse("/workers", HTTPStatus.SEE_OTHER)

    def threads(request: Request) -> Response:
        slot = _slot(request)
        console.audit_log.note(request, "worker.threads", slot=slot)
        dump = console.sources.workers.dump_threads(slot)
        if dump is None:
            raise HTTPException(HTTPStatus.CONFLICT, f"worker {slot} does not run on this machine, or did not answer")
        return console.page(request, "threads.html", slot=slot, dump=dump)

    return [
        route("/workers", workers, name="workers"),
        route("/workers/restart", restart, needs=Role.OPERATOR, name="restart-worker", tokens=console.tokens),
        route("/workers/threads", threads, needs=Role.OPERATOR, name="worker-threads", tokens=console.tokens),
    ]


def _slot(request: Request) -> int:
    text = request.state.form.get("slot", "")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the slot is the number of a worker")
    return int(text)
