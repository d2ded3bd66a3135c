"""Who makes a request: which person or program, what it may do, from which machine; and the audit log of what it did."""

import ipaddress
import os
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import msgspec

from resequencer.clock import SteadyClock, instant_text
from resequencer.errors import TransientError
from storage.private_file import make_private, sync_directory

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


class Role(StrEnum):
    """What a user may do. `operator` may all that `viewer` may."""

    VIEWER = "viewer"
    """See everything except payment data."""
    OPERATOR = "operator"
    """Change something: requeue, discard or edit dead letters, restart a worker, give orders."""
    PAYMENTS = "payments"
    """See payment data."""


class Identity(NamedTuple):
    """`sends_by_itself` is set if the browser adds the login to any request, also to one that another site made it send."""

    name: str
    roles: frozenset[Role]
    sends_by_itself: bool

    def may(self, role: Role) -> bool:
        return role in self.roles or (role is Role.VIEWER and Role.OPERATOR in self.roles)


class Authenticator(Protocol):
    """Finds out who makes a request. `challenge` is the answer's `WWW-Authenticate` for a request without a login."""

    @property
    def challenge(self) -> str | None: ...

    def find_claimed_name(self, connection: "HTTPConnection") -> str | None:
        """Return the name that the request claims, if its secret could be guessed; None if guesses are hopeless."""
        ...

    async def find_identity(self, connection: "HTTPConnection") -> Identity | None:
        """Return who makes the request, None if it has no valid login. It does not hold the event loop up.

        Raises:
            ResequencerError: It cannot be found out at the moment.
        """
        ...


class NoLogin:
    """`auth = none`: each request comes from this machine, and may do everything."""

    challenge = None

    def find_claimed_name(self, connection: "HTTPConnection") -> str | None:
        del connection
        return None

    async def find_identity(self, connection: "HTTPConnection") -> Identity | None:
        del connection
        return Identity("local", frozenset(Role), sends_by_itself=True)


Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Client(NamedTuple):
    """The address of the machine that asks, and that of the proxy that connects for it, if one does."""

    address: str
    proxy: str | None = None

    @property
    def network(self) -> str:
        """What limits count by: with IPv6 one client has 2**64 addresses, so it is the /64 (RFC 6177)."""
        try:
            found = ipaddress.IPv6Address(self.address.partition("%")[0])
        except ValueError:
            return self.address
        return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def find_client(connection: "HTTPConnection", trusted: Sequence[Network]) -> Client:
    """Return who makes the request. What another address than a trusted proxy's says in `X-Forwarded-For` does not count.

    Each proxy appends the address that connected to it. So the last one that is no trusted proxy is the client; what stands
    before it may be an invention of the client.
    """
    nearest = connection.client.host if connection.client else ""
    if not is_within(nearest, trusted):
        return Client(nearest)
    for text in reversed(",".join(connection.headers.getlist("x-forwarded-for")).split(",")):
        address = _address(text)
        if address is None:
            return Client(nearest)
        if not is_within(address, trusted):
            return Client(address, nearest)
    return Client(nearest)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether the text is an address in one of the networks."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in each for each in networks)


def _address(text: str) -> str | None:
    """Return the address in its canonical form, so that one client has one name; None if the text has none."""
    try:
        return str(ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


_PREFIX, _SUFFIX = "console-audit-", ".jsonl"


class AuditLogUnavailable(TransientError):
    """A line cannot be written, so its action is not done."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(
            f"{file}: the audit log cannot be written ({error.strerror}), so nothing was done; free space, then repeat"
        )


class AuditLog:
    """A file for each day in the run directory, with one JSON object per line; older files are deleted after the retention.

    A line is on the disk before its action is done. Files are deleted only while the clock is trusted, and never one in
    which this process wrote within the retention. May be used from several threads.
    """

    def __init__(self, directory: Path, retention_ms: int, clock: SteadyClock) -> None:
        self._directory = directory
        self._retention_ms = retention_ms
        self._clock = clock
        self._lock = Lock()
        self._cleared_on = ""
        self._written_at = dict[Path, int]()

    def note(self, request: "HTTPConnection", action: str, **details: str | int | None) -> None:
        """Write that this request's user does `action`, such as `payment-data.look`.

        Raises:
            AuditLogUnavailable: The line could not be written.
        """
        identity: Identity = request.state.identity
        client: Client = request.state.client
        via = {} if client.proxy is None else {"proxy": client.proxy}
        self._write({"by": identity.name, "from": client.address, **via, "action": action, **details})

    def note_from_shell(self, by: str, action: str, **details: str | int | None) -> None:
        """Write that a person does `action` by a command.

        Raises:
            AuditLogUnavailable: The line could not be written.
        """
        self._write({"by": by, "from": "shell", "action": action, **details})

    def _write(self, what: dict[str, str | int | None]) -> None:
        now = self._clock.now()
        line = {"at": instant_text(now), **what}
        with self._lock:
            day = instant_text(now)[:10]
            file = self._directory / f"{_PREFIX}{day}{_SUFFIX}"
            try:
                self._append(file, msgspec.json.encode(line) + b"\n")
                if file not in self._written_at:
                    sync_directory(self._directory)  # Also of one that is there: its first writer may have been killed.
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
            if os.geteuid() == 0:  # A command of root must not keep the service's user from writing the next line.
                owner = self._directory.stat()
                with suppress(PermissionError):
                    os.fchown(descriptor, owner.st_uid, owner.st_gid)
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
