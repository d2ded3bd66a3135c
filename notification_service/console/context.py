"""What all pages and operations share: templates, views of the storage, the audit log, and who listens to events."""

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from threading import Condition, Lock
from time import monotonic
from typing import Any, NoReturn

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from notification_service.console.access.client import Client
from notification_service.console.access.identity import Identity
from notification_service.console.access.layer import FormTokens
from notification_service.console.find_unit import duration_text, relative_text
from notification_service.console.groups import Groups
from notification_service.console.history import History, Sampler
from notification_service.console.peers import Peers
from notification_service.console.settings import HttpSettings
from notification_service.console.sources import Sources
from notification_service.console.waiting import WaitingUnits
from resequencer.clock import Clock, Instant, SteadyClock, instant_of, instant_text
from resequencer.errors import TransientError
from resequencer.printable import counted, printable
from resequencer.storage_port import StorageUnavailable
from storage.private_file import make_private, sync_directory
from storage.view_port import StorageView

TEMPLATES = Path(__file__).parent / "templates"
_ISO_INSTANT = re.compile(r"\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[.\d]*Z")


def make_templates(clock: Clock) -> Jinja2Templates:
    """All texts are escaped. Ids of other systems pass the filter `visible`, which shows control characters as escapes."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": printable,
        "counted": counted,
        "number": lambda value: f"{value:,}".replace(",", "\N{NO-BREAK SPACE}"),
        "instant": instant_shown,
        "with_instants": lambda text: _ISO_INSTANT.sub(lambda found: instant_shown(found[0]), text),
        "age": lambda at: duration_text(clock.now() - (instant_of(at) if isinstance(at, str) else at)),
        "relative": lambda at: relative_text(instant_of(at) if isinstance(at, str) else at, clock.now()),
        "duration": duration_text,
        "rate": rate_text,
    }
    return Jinja2Templates(env=environment)


def instant_shown(at: Instant | str) -> str:
    """Return an instant as pages show it, to the second; a text that is no instant as it is, made printable."""
    try:
        return instant_text(instant_of(at) if isinstance(at, str) else at).replace("T", " ")[:19]
    except ValueError:
        return printable(str(at))


def rate_text(per_second: float) -> str:
    """Return a rate with so many digits that a rare event is not shown as none."""
    return f"{per_second:.1f}" if per_second >= 0.1 or not per_second else f"{per_second:.3f}"


MAX_LISTENERS = 100
"""Each page that listens keeps a connection; half of those that the server has remain for requests."""


class Listening:
    """Counts those that listen now. Used by the server's thread alone, but for `check`."""

    def __init__(self) -> None:
        self.count = 0

    def check(self) -> None:
        """Raises HTTPException (503): As many listen as may."""
        if self.count >= MAX_LISTENERS:
            problem = "too many pages are open; load this one again to see what is new"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, problem, {"Retry-After": "10"})

    async def counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yield the events, and count the listener while it gets them."""
        self.count += 1
        try:
            async for each in events:
                yield each
        finally:
            self.count -= 1
            if hasattr(events, "aclose"):
                await events.aclose()


MAX_VIEWS = 4
"""Views at once. Each keeps its connections, and with Infinispan some memory."""

_WAIT_SECONDS = 2.0


class SharedViews:
    """Lends views to threads. Used from several threads."""

    def __init__(self, open_view: Callable[[], StorageView], wait_seconds: float = _WAIT_SECONDS) -> None:
        self._open_view = open_view
        self._wait_seconds = wait_seconds
        self._returned = Condition()
        self._idle: list[StorageView] = []
        self._lent = 0
        self._is_closed = False

    @contextmanager
    def lent(self) -> Iterator[StorageView]:
        """Lend a view. If all are in use for too long, it is one that says so: its methods raise StorageUnavailable."""
        view = self._take()
        try:
            yield view or _NoneFree()
        finally:
            if view is not None:
                self._give_back(view)

    def close(self) -> None:
        """Close the views; one that is in use is closed when it is given back."""
        with self._returned:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _take(self) -> StorageView | None:
        until = monotonic() + self._wait_seconds
        with self._returned:
            while not self._idle and self._lent >= MAX_VIEWS:
                if not self._returned.wait(until - monotonic()):
                    return None
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open_view()
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, view: StorageView | None) -> None:
        with self._returned:
            self._lent -= 1
            if view is not None and not self._is_closed:
                self._idle.append(view)
                view = None
            self._returned.notify()
        if view is not None:
            view.close()


class _NoneFree:
    """Stands for a view that could not be had in time."""

    @staticmethod
    def find_header(*_: object) -> NoReturn:
        raise StorageUnavailable(
            f"{MAX_VIEWS} other pages wait for the storage, which does not answer them; try again in a moment"
        )

    find_unit = find_waiting = find_header

    def close(self) -> None:
        pass


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


class Console:
    """One console. Requests are handled in several threads."""

    def __init__(self, settings: HttpSettings, sources: Sources) -> None:
        self.settings = settings
        self.sources = sources
        self.tokens = FormTokens(sources.steady_clock.passed)
        self.audit_log = AuditLog(sources.run_directory, settings.audit_retention_ms, sources.steady_clock)
        self.history = History(sources.run_directory, sources.steady_clock)
        self.sampler = Sampler(sources, self.history, has_approval=bool(settings.approval))
        self.waiting = WaitingUnits(sources)
        self.peers = Peers(settings.peers, settings.peers_token, sources.clock)
        self._templates: Jinja2Templates = make_templates(sources.clock)
        self.ledger = None if sources.open_ledger is None else sources.open_ledger()
        self.groups = None if sources.groups is None else Groups(sources.groups, sources.clock)
        self.listening = Listening()
        self._views = None if sources.open_view is None else SharedViews(sources.open_view)

    def page(self, request: Request, template: str, status: int = 200, **shown: Any) -> Response:
        """Render a page for the person who asks."""
        identity = identity_of(request)
        shown |= {"identity": identity, "now": self.sources.clock.now(), "form_token": lambda: self.tokens.make(identity)}
        return self._templates.TemplateResponse(request, template, shown, status_code=status)

    @contextmanager
    def viewing(self) -> Iterator[StorageView | None]:
        """A view of the storage for this thread alone; None with storage `none`."""
        if self._views is None:
            yield None
            return
        with self._views.lent() as view:
            yield view

    def start(self) -> None:
        """Begin to look at the service in the background."""
        self.sampler.start()
        self.waiting.start()
        if self.groups is not None:
            self.groups.start()

    def end_streams(self) -> None:
        """Let those go that listen to completions, so that the server need not wait for them. May be called more than once."""
        if self.groups is not None:
            self.groups.feed.end()

    def close(self) -> None:
        self.sampler.stop()
        if self.groups is not None:
            self.groups.close()
        self.waiting.close()
        if self.ledger is not None:
            self.ledger.close()
        if self._views is not None:
            self._views.close()


def identity_of(request: Request) -> Identity:
    """Who makes this request, as the access layer found out."""
    identity: Identity = request.state.identity
    return identity
