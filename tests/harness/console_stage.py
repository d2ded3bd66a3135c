"""A console over sources that a test sets, with a client that behaves like a browser of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

from harness.service_under_test import FakeClock
from harness.steady import steady
from starlette.testclient import TestClient

from guardian.ports import OrderBook
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.console.access.identity import Authenticator, NoLogin
from notification_service.console.access.layer import Limits
from notification_service.console.access.settings import HttpSettings, HttpTls, MetricsEndpoint, ProbesEndpoint, TrustedProxy
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.console.sources import Sources
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.status.service_report import ServiceReport
from resequencer.record import Partition
from resequencer.unit_codec import UnitCodec
from storage.view_port import StorageView

URL = "http://127.0.0.1:8080"


def text_of(page: str) -> str:
    """Return the text of a page as a person reads it, without what the script adds."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", without_times(page))).split())


def without_times(page: str) -> str:
    """Return the page without the elements around its instants."""
    return re.sub(r"</?time[^>]*>", "", page)


class Workers:
    """Notes what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def restart(self, slot: int) -> bool:
        self.asked.append(("restart", slot))
        return slot == 0

    def dump_threads(self, slot: int) -> str | None:
        self.asked.append(("dump", slot))
        return "Current thread 0x1" if slot == 0 else None


def no_dead_letters(asked_for: AskedFor, sign: Sign) -> DeadLetterStore:
    raise AssertionError("this test asks for no dead letters")


def http_settings(directory: Path, **changed: Any) -> HttpSettings:
    """The defaults of conf/reference.conf, with changes."""
    given: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 8080,
        "is_enabled": True,
        "auth": "none",
        "users_file": directory / "console-users.json",
        "proxy": TrustedProxy((), "X-Forwarded-User", "X-Forwarded-Roles"),
        "tls": HttpTls(None, None),
        "peers": (),
        "peers_token": "",
        "audit_retention_ms": 90 * 86_400_000,
        "approval": (),
        "probes": ProbesEndpoint(host="127.0.0.1", port=8081),
        "metrics": MetricsEndpoint(host="127.0.0.1", port=8082),
    }
    return HttpSettings(**{**given, **changed})


def make_sources(
    directory: Path,
    *,
    report: ServiceReport | None = None,
    open_view: Callable[[], StorageView] | None = None,
    partitions: Sequence[Partition] = (),
    open_dead_letters: Callable[[AskedFor, Sign], DeadLetterStore] = no_dead_letters,
    clock: FakeClock | None = None,
    workers: Workers | None = None,
    open_orders: Callable[[], OrderBook] | None = None,
    open_ledger: Callable[[], Ledger] | None = None,
) -> Sources:
    """Sources of which a test sets what it needs."""
    strategy = make_strategy(StrategySettings("SEQUENCE"))
    return Sources(
        find_report=lambda: report,
        open_view=open_view,
        find_partitions=lambda: partitions,
        find_ends=lambda: dict.fromkeys(partitions, 100),
        open_dead_letters=open_dead_letters,
        codec=UnitCodec(strategy, EnvelopeDecoder(DecodingSettings(strategy.needs_sequence)).decode, LATEST_OBJECTS),
        workers=workers or Workers(),
        clock=(clock := clock or FakeClock()),
        steady_clock=steady(clock),
        run_directory=directory,
        open_orders=open_orders,
        open_ledger=open_ledger,
    )


def client_of(
    sources: Sources, authenticator: Authenticator | None = None, limits: Limits | None = None, **settings: Any
) -> TestClient:
    """A client of a console over these sources; by default without a login."""
    console = Console(http_settings(sources.run_directory, **settings), sources)
    return TestClient(make_application(console, authenticator or NoLogin(), limits), base_url=URL, follow_redirects=False)


FORM = "form-token"


def token_on(client: TestClient, path: str) -> str:
    """Return the token of the first form on a page, as a browser would send it."""
    page = client.get(path)
    assert page.status_code == 200, page.text
    found = re.search(r'name="form-token" value="([^"]+)"', page.text)
    assert found is not None, f"{path} has no form"
    return found[1]
