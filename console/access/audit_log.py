"""The audit log of the console: who looked at payment data and who changed what, when, and from where."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

import msgspec
from starlette.requests import Request

from console.access.identity import Identity
from domain.clock import Clock, instant_text
from domain.errors import TransientError

_PREFIX, _SUFFIX = "console-audit-", ".jsonl"


class AuditLogUnavailable(TransientError):
    """A line cannot be written, so what it would tell of is not done."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(
            f"{file}: the audit log cannot be written ({error.strerror}), so nothing was done; make room, then repeat"
        )


class AuditLog:
    """A file for each day in the run directory, with one JSON object per line; older files are deleted after the retention.

    A line is on the disk before what it tells of is done. May be used from several threads.
    """

    def __init__(self, directory: Path, retention_ms: int, clock: Clock) -> None:
        self._directory = directory
        self._retention_ms = retention_ms
        self._clock = clock
        self._lock = Lock()
        self._day = ""

    def note(self, request: Request, action: str, **details: str | int | None) -> None:
        """Write that this request's user does `action`, such as `payment-data.look`.

        Raises:
            AuditLogUnavailable: The line could not be written.
        """
        identity: Identity = request.state.identity
        now = self._clock.now()
        address = request.client.host if request.client else ""
        line = {"at": instant_text(now), "by": identity.name, "from": address, "action": action, **details}
        with self._lock:
            day = instant_text(now)[:10]
            file = self._directory / f"{_PREFIX}{day}{_SUFFIX}"
            try:
                self._append(file, msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise AuditLogUnavailable(file, error) from error
            if day != self._day:
                self._day = day
                self._clear(instant_text(now - self._retention_ms)[:10])

    def _append(self, file: Path, line: bytes) -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, before)
                raise OSError(28, "No space left on device")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _clear(self, before: str) -> None:
        for each in self._directory.glob(f"{_PREFIX}*{_SUFFIX}"):
            if each.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) < before:
                with suppress(OSError):
                    each.unlink(missing_ok=True)
