"""A console over a real storage, real files and a real ledger: a waiting unit, dead letters, a worker's report, and a job."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from harness.console_stage import URL, Workers, http_settings, make_sources
from harness.counted_groups import GroupStage, JobsStage
from harness.driving import PARTITION, Driven, Envelopes
from harness.ledger_stage import LedgerStage, item
from harness.receivers import receiver
from harness.service_under_test import BEGINNING
from harness.stored_units import StoredUnits
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, encode_line
from notification_service.console import application as console_server
from notification_service.console.access.identity import Identity, NoLogin, Role
from notification_service.console.access.layer import Limits
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.status.report import PartitionStatus, State, StatusReport
from notification_service.status.service_report import ServedStatus, service_report
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.clock import instant_text

API = "/api/v1"
WAITING = "uow-1"
GROUP = "GROUP1"
MANY = Limits(requests_per_second=100_000, requests_at_once=100_000)


class NamedRoles:
    """Lets in who names roles in the header `x-roles`; no browser adds it by itself."""

    challenge = "Bearer"

    def find_claimed_name(self, connection: HTTPConnection) -> None:
        del connection

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        roles_header = connection.headers.get("x-roles")
        roles = frozenset(Role(each) for each in (roles_header or "").split())
        return None if roles_header is None else Identity("ann", roles, sends_by_itself=False)


class ApiStage:
    """`client` has all roles and its login is sent by itself, as with `auth = none`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.out, self.into = directory / "out", directory / "in"
        self.out.mkdir()
        self.into.mkdir()
        self.input = self.into / f"partition-{PARTITION.number}.jsonl"
        self.input.touch()
        letters = [_letter(number) for number in (1, 2, 3)]
        (self.out / "dead-letters.jsonl").write_bytes(b"".join(letters))
        self.units = StoredUnits(directory)
        driven, envelope = Driven(make_strategy(StrategySettings("SEQUENCE"))), Envelopes()
        driven.arrive(envelope(2))
        self.units.keep(driven)
        at = instant_text(BEGINNING)
        report = StatusReport(
            State.READY,
            None,
            1,
            "x.conf",
            at,
            at,
            worker_process_id=2,
            partitions=(PartitionStatus(str(PARTITION), 9, 9, 0, None),),
        )
        self.workers = Workers()
        files = FileSettings(PARTITION.topic, self.into, self.out, 1_000_000)
        sources = make_sources(
            directory,
            report=service_report([report], BEGINNING, is_running=True),
            open_view=self.units.open_view,
            partitions=(PARTITION,),
            open_dead_letters=lambda asked_for, sign: FileDeadLetterStore(files, sign),
            workers=self.workers,
        )
        self.ledger = LedgerStage(f"sqlite:///{directory}/ledger.db", receiver())
        self.ledger.take(item(WAITING, 1), item("uow-2", 1), job="monday")
        self.groups = GroupStage(directory / "groups")
        self.groups.status(GROUP, WAITING, "ACSP")
        self.groups.count()
        self.jobs = JobsStage(directory / "jobs")
        self.jobs.finish("request-7", 0)
        self.jobs.count()
        sources = sources._replace(
            find_served=lambda: ServedStatus({"console": URL}),
            open_ledger=self.ledger.another,
            groups=self.groups,
            stores={"jobs": self.jobs},
            find_aggregation=self.groups.find_status,
        )
        self.console = Console(http_settings(directory, **settings), sources)
        self.console.waiting.refresh()
        for each in self.console.stores.values():
            each.watch.refresh()
        self.client = TestClient(make_application(self.console, NoLogin(), MANY), base_url=URL, raise_server_exceptions=False)

    def application(self) -> Starlette:
        """With a login by `NamedRoles`."""
        return make_application(self.console, NamedRoles(), MANY)

    def get(self, path: str, **parameters: str) -> Any:
        return self.client.get(f"{API}{path}", params=parameters).json()

    def post(self, path: str, body: Any, expected: int = 200) -> Any:
        token = self.get("/token")["token"]
        answer = self.client.post(f"{API}{path}", json=body, headers={"x-form-token": token})
        assert answer.status_code == expected, answer.text
        return answer.json()

    def close(self) -> None:
        self.console.close()
        self.units.close()
        self.ledger.close()
        self.groups.close()
        self.jobs.close()


@contextmanager
def serving(application: Starlette) -> Iterator[str]:
    """Serve the application on loopback as the console does, in a thread; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = console_server.server_of(console_server.Endpoint(application, bound))
        thread = Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def number_of(number: int) -> str:
    return f"{PARTITION}#{number}"


def _letter(number: int) -> bytes:
    headers = (
        ("schema-version", b"2"),
        ("dead-letter-reason", b"undecodable"),
        ("dead-letter-error", b"<b>no JSON</b>"),
        ("dead-letter-source-position", f"{PARTITION}@{number}".encode()),
        ("dead-letter-at", b"2026-03-28T23:20:00.000Z"),
    )
    return encode_line(Line(b"secret %d" % number, f"uow-{number}".encode(), headers), number=number_of(number), verbatim=True)
