"""The health probes of a service: `/health/live` and `/health/ready`, answered by a thread of its supervisor.

The supervisor answers, and not a worker or the console: neither a full disk nor a console that ended may restart a container.
"""

import logging
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import monotonic

import msgspec

from notification_service.console.access.settings import CannotListen, ProbesEndpoint, listen, url_of
from notification_service.status.file import SideFile
from notification_service.status.report import State
from notification_service.status.service_report import Served, find_reports, probes_file, service_report
from resequencer.clock import Clock

_log = logging.getLogger("resequencer.supervisor")
_MAX_CONNECTIONS = 32
"""If one more comes, the oldest is closed: clients that send nothing cannot lock others out."""
_HEAD_SECONDS = 2.0
"""How long a client may take to send its request."""
_HEAD_BYTES = 8_192
_ACCEPT_PAUSE_SECONDS = 0.5


class WorkerHealth(msgspec.Struct, frozen=True):
    """A worker's state as `status` says it, with the reason."""

    slot: int
    state: str
    reason: str | None


class Health(msgspec.Struct, frozen=True):
    """The body of an answer about readiness."""

    state: str
    workers: tuple[WorkerHealth, ...]


def health_of(run_directory: Path, process_id: int, clock: Clock) -> Health:
    """Return the state of the service whose supervisor is `process_id`, from the reports of its workers."""
    reports = find_reports(run_directory)
    if not reports or reports[0].process_id != process_id:
        return Health(State.STARTING, ())
    found = service_report(reports, clock.now(), is_running=True)
    return Health(found.state, tuple(WorkerHealth(each.slot, state, each.reason) for state, each in found.workers))


class Probes:
    """Answers from `start` to `close`, in one thread and with few connections. No failure of it reaches the supervisor."""

    def __init__(self, endpoint: ProbesEndpoint, file: SideFile[Served], find_health: Callable[[], Health]) -> None:
        self._endpoint = endpoint
        self._file = file
        self._find_health = find_health
        self._listening: socket.socket | None = None

    def start(self) -> None:
        """Listen, and write the address, or why there is none, to the run directory."""
        try:
            self._listening = listen(self._endpoint)
        except CannotListen as error:
            _log.warning("the health probes are not served: %s", error)
            self._file.write_problem(str(error))
            return
        self._listening.setblocking(False)
        self._file.write(Served(os.getpid(), os.getpid(), urls={"probes": url_of(self._listening)}))
        Thread(target=_Answering(self._listening, self._find_health).run, name="probes", daemon=True).start()

    def close(self) -> None:
        """The address is no longer reported. The thread ends with the process, so a service that drains is live to its end."""
        self._file.remove()


class _Connection:
    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.head = b""
        self.ends_at = monotonic() + _HEAD_SECONDS


class _Answering:
    """The thread's loop: one request for each connection."""

    def __init__(self, listening: socket.socket, find_health: Callable[[], Health]) -> None:
        self._listening = listening
        self._find_health = find_health
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._open: dict[socket.socket, _Connection] = {}

    def run(self) -> None:
        while True:
            ends_at = min((each.ends_at for each in self._open.values()), default=None)
            ready = self._selector.select(None if ends_at is None else max(0.0, ends_at - monotonic()))
            for key, _ in ready:
                if key.fileobj is self._listening:
                    self._accept()
                elif isinstance(key.data, _Connection) and key.data.socket in self._open:
                    self._read(key.data)
            for each in [each for each in self._open.values() if each.ends_at <= monotonic()]:
                self._close(each)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError as error:  # For instance, too many files are open.
            _log.warning("a health probe could not be accepted: %s", error)
            if self._open:
                self._close(next(iter(self._open.values())))
            self._pause()
            return
        accepted.setblocking(False)
        if len(self._open) >= _MAX_CONNECTIONS:
            self._close(next(iter(self._open.values())))
        self._open[accepted] = connection = _Connection(accepted)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _pause(self) -> None:
        """Wait, or the connection that cannot be accepted would keep a core busy."""
        with selectors.DefaultSelector() as nothing:
            nothing.select(_ACCEPT_PAUSE_SECONDS)

    def _read(self, connection: _Connection) -> None:
        try:
            received = connection.socket.recv(_HEAD_BYTES)
            connection.head += received
            if b"\r\n\r\n" in connection.head:
                connection.socket.send(_answer(connection.head, self._find_health))
            elif received and len(connection.head) <= _HEAD_BYTES:
                return
        except BlockingIOError:
            return
        except OSError:  # The client has gone.
            pass
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        del self._open[connection.socket]
        self._selector.unregister(connection.socket)
        connection.socket.close()


def _answer(head: bytes, find_health: Callable[[], Health]) -> bytes:
    """Return the whole answer; it fits into the socket's buffer."""
    method, _, remainder = head.partition(b" ")
    path = remainder.partition(b" ")[0].partition(b"?")[0]
    if path == b"/health/live" and method in (b"GET", b"HEAD"):
        return _response("200 OK", b'{"state":"live"}', method)
    if path == b"/health/ready" and method in (b"GET", b"HEAD"):
        found = _find(find_health)
        if found is None:
            return _response("503 Service Unavailable", b'{"state":"unknown"}', method)
        status = "200 OK" if found.state == State.READY else "503 Service Unavailable"
        return _response(status, msgspec.json.encode(found), method)
    if path in (b"/health/live", b"/health/ready"):
        return _response("405 Method Not Allowed", b"{}", method)
    return _response("404 Not Found", b"{}", method)


def _find(find_health: Callable[[], Health]) -> Health | None:
    """Return the health, None if the reports cannot be read. Then the service is not ready, but the supervisor is alive."""
    try:
        return find_health()
    except Exception as error:  # noqa: BLE001 - The thread must continue to answer, whatever is in the files.
        _log.warning("the health of the service cannot be found out: %s", error)
        return None


def _response(status: str, body: bytes, method: bytes) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)


def make_probes(endpoint: ProbesEndpoint, run_directory: Path, clock: Clock) -> Probes:
    """Make the probes of this process's service."""
    process_id = os.getpid()
    return Probes(endpoint, probes_file(run_directory), lambda: health_of(run_directory, process_id, clock))
