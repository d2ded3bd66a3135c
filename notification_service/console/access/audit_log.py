"""The audit log of the console: who looked at payment data and who changed what, when, and from where."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

import msgspec
from starlette.requests import Request

from notification_service.console.access.identity import Client, Identity
from resequencer.clock import SteadyClock, instant_text
from resequencer.errors import TransientError
from storage.private_file import make_private

_PREFIX, _SUFFIX = "console-audit-", ".jsonl"


class AuditLogUnavailable(TransientError):
    """A line cannot be written, so what it would tell of is not done."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(
            f"{file}: the audit log cannot be written ({error.strerror}), so nothing was done; make room, then repeat"
        )


class AuditLog:
    """A file for each day in the run directory, with one JSON object per line; older files are deleted after the retention.

    A line is on the disk before what it tells of is done. Files are deleted only while the clock is trusted, and never one in
    which this process wrote within the retention. May be used from several threads.
    """

    def __init__(self, directory: Path, retention_ms: int, clock: SteadyClock) -> None:
        self._directory = directory
        self._retention_ms = retention_ms
        self._clock = clock
        self._lock = Lock()
        self._cleared_on = ""
        self._written_at = dict[Path, int]()

    def note(self, request: Request, action: str, **details: str | int | None) -> None:
        """Write that this request's user does `action`, such as `payment-data.look`.

        Raises:
            AuditLogUnavailable: The line could not be written.
        """
        identity: Identity = request.state.identity
        now = self._clock.now()
        client: Client = request.state.client
        via = {} if client.proxy is None else {"proxy": client.proxy}
        line = {"at": instant_text(now), "by": identity.name, "from": client.address, **via, "action": action, **details}
        with self._lock:
            day = instant_text(now)[:10]
            file = self._directory / f"{_PREFIX}{day}{_SUFFIX}"
            try:
                self._append(file, msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise AuditLogUnavailable(file, error) from error
            passed = self._clock.passed()
            self._written_at[file] = passed
            if day != self._cleared_on and self._clock.was_trusted:
                self._cleared_on = day
                self._clear(instant_text(now - self._retention_ms)[:10], passed - self._retention_ms)

    def _append(self, file: Path, line: bytes) -> None:
        descriptor = os.open(make_private(file), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, before)
                raise OSError(28, "No space left on device")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _clear(self, before: str, before_passed: int) -> None:
        # A clock that was behind gave an old name to a file with young lines: by the time that has passed it is young.
        self._written_at = {file: at for file, at in self._written_at.items() if at >= before_passed}
        for each in self._directory.glob(f"{_PREFIX}*{_SUFFIX}"):
            if each not in self._written_at and each.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) < before:
                with suppress(OSError):
                    each.unlink(missing_ok=True)
