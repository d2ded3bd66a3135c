"""What all pages and routes share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from notification_service.console.access.audit_log import AuditLog
from notification_service.console.access.identity import Identity
from notification_service.console.access.layer import FormTokens
from notification_service.console.groups.watch import Groups
from notification_service.console.history import History
from notification_service.console.listening import Listening
from notification_service.console.peers import Peers
from notification_service.console.sampler import Sampler
from notification_service.console.settings import HttpSettings
from notification_service.console.sources import Sources
from notification_service.console.templating import make_templates
from notification_service.console.views import SharedViews
from notification_service.console.waiting.refresher import WaitingUnits
from storage.view_port import StorageView


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
