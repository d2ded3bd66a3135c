"""A simulation in a temporary directory, and the output of a faultless service for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from harness.packages import ROOT
from harness.service_under_test import P0, Service

from notification_service.connectors.line_format import Line, encode_line
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.settings import HandlerSettings, make_handler
from notification_service.simulator.expectation import Expected, ExpectedEnvelope, ExpectedGarbage, ExpectedUnit
from notification_service.simulator.generate.plan import Numbering, Plan
from notification_service.simulator.generate.simulation import Pacer, Summary, simulate
from notification_service.simulator.verify.operator_orders import OrdersLog
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Verdict
from notification_service.simulator.verify.verification import verify_files
from resequencer.order import Order, OrderKind

SHARED_SAMPLES = Path(__file__).parents[4] / "shared" / "samples"
"""Files of other projects, beside the repository and no part of it: see tests/notification_service/payments/conftest.py."""

_KNOWN: dict[Plan, Run] = {}


@dataclass
class Run:
    """The files of one simulation."""

    directory: Path
    summary: Summary

    @cached_property
    def expected_lines(self) -> list[bytes]:
        return (self.directory / "expected.jsonl").read_bytes().splitlines()

    @cached_property
    def expected(self) -> list[Any]:
        return [msgspec.json.decode(line, type=Expected) for line in self.expected_lines]

    @property
    def units(self) -> list[ExpectedUnit]:
        return [each for each in self.expected if isinstance(each, ExpectedUnit)]

    @property
    def garbage(self) -> list[ExpectedGarbage]:
        return [each for each in self.expected if isinstance(each, ExpectedGarbage)]

    def partition(self, number: int = 0) -> bytes:
        return (self.directory / "in" / f"partition-{number}.jsonl").read_bytes()


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """Simulate without making pauses."""

    def run(directory: str = "run", **fields: Any) -> Run:
        plan = Plan(**({"units": 60, "seed": 7} | fields))
        target = tmp_path / directory
        summary = simulate(plan, target / "in", target / "expected.jsonl", lambda done, of: None, lambda pause_ms: None)
        return Run(target, summary)

    return run


@pytest.fixture
def known_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """The same without a directory. Tests with the same fields share a run and must not change it."""

    def known_run(**fields: Any) -> Run:
        plan = Plan(**({"units": 60, "seed": 7} | fields))
        if plan not in _KNOWN:
            target = tmp_path_factory.mktemp("known")
            summary = simulate(plan, target / "in", target / "expected.jsonl", lambda done, of: None, lambda pause_ms: None)
            _KNOWN[plan] = Run(target, summary)
        return _KNOWN[plan]

    return known_run


class Outcome(NamedTuple):
    """An envelope handled by a faultless service, with its marks."""

    envelope: ExpectedEnvelope
    incomplete: str | None = None
    is_late: bool = False


def outcomes(unit: ExpectedUnit, rules: Rules) -> list[Outcome]:
    """Return what a faultless service handles, in order. Written from the design, not from the rules under test."""
    arrivals = sorted((each for each in unit.envelopes if each.arrived is not None), key=lambda each: each.arrived or 0)
    if rules.gathers:
        return list(_gathered(arrivals, rules.required))
    is_one_lane = unit.numbering == "shared" or len(unit.flows) == 1
    if is_one_lane:
        return list(_ordered(arrivals))
    return [each for flow in unit.flows for each in _ordered([one for one in arrivals if one.flow == flow])]


def _ordered(arrivals: list[ExpectedEnvelope]) -> Iterator[Outcome]:
    stash: list[ExpectedEnvelope] = []
    following = 1

    def loosen() -> Iterator[Outcome]:
        nonlocal following
        while stash and stash[0].sequence <= following:
            following = stash[0].sequence + 1
            yield Outcome(stash.pop(0))

    def deadline() -> Iterator[Outcome]:
        nonlocal following
        while stash:
            forced, missing = stash.pop(0), following
            following = forced.sequence + 1
            yield Outcome(forced, incomplete=f"sequence:{missing}")
            yield from loosen()

    for is_late_phase in (False, True):
        for envelope in arrivals:
            if envelope.late is not is_late_phase:
                continue
            if envelope.sequence < following:
                yield Outcome(envelope, is_late=True)
                continue
            stash.append(envelope)
            stash.sort(key=lambda each: each.sequence)
            yield from loosen()
        yield from deadline()


def _gathered(arrivals: list[ExpectedEnvelope], required: frozenset[str]) -> Iterator[Outcome]:
    seen: set[str] = set()
    stash: list[ExpectedEnvelope] = []
    for is_late_phase in (False, True):
        for envelope in arrivals:
            if envelope.late is not is_late_phase:
                continue
            seen |= {*envelope.parts, *(f"customData:{key}" for key in envelope.custom), *(f"pdsData:{n}" for n in envelope.pds)}
            if required <= seen:
                yield Outcome(envelope)
                yield from (Outcome(each) for each in stash)
                stash = []
            else:
                stash.append(envelope)
        yield from (Outcome(each, incomplete=",".join(sorted(required - seen))) for each in stash)
        stash = []


class Output(NamedTuple):
    """Output lines as the service writes them, without newlines."""

    notifications: list[bytes]
    dead_letters: list[bytes]


def faultless(run: Run, rules: Rules) -> Output:
    notifications = [line for unit in run.units for outcome in outcomes(unit, rules) for line in notify(unit, outcome)]
    return Output(notifications, [dead_letter_of(each) for each in run.garbage])


def notify(unit: ExpectedUnit, outcome: Outcome) -> Iterator[bytes]:
    envelope = outcome.envelope
    for process in envelope.processes:
        if process.notification_id is None:
            continue
        headers = {
            "notification-id": process.notification_id,
            "envelope-id": envelope.envelope_id,
            "source-position": f"IPF_PROCESSING_DATA-{unit.partition}@1",
            "event-name": process.event,
            "process-flow-name": process.flow,
        }
        headers |= {"incomplete": outcome.incomplete} if outcome.incomplete is not None else {}
        headers |= {"late": "true"} if outcome.is_late else {}
        yield line(unit.unit, headers, report(unit, process.notification_id, process.status, process.reason))


def report(unit: ExpectedUnit, identifier: str, status: str | None, reason: str | None) -> dict[str, Any]:
    transaction: dict[str, Any] = {"OrgnlEndToEndId": unit.end_to_end_id, "TxSts": status}
    transaction |= {"StsRsnInf": [{"Rsn": {"Cd": reason}}]} if reason else {}
    payment = {"OrgnlPmtInfId": unit.payment_information_id, "TxInfAndSts": [transaction]}
    head = {"OrgnlMsgId": unit.message_id, "OrgnlMsgNmId": "pain.001.001.09"}
    parts = {"GrpHdr": {"MsgId": identifier}, "OrgnlGrpInfAndSts": head, "OrgnlPmtInfAndSts": [payment]}
    return {"CstmrPmtStsRpt": parts}


def dead_letter_of(garbage: ExpectedGarbage) -> bytes:
    position = f"IPF_PROCESSING_DATA-{garbage.partition}@{garbage.offset}"
    return line("any", {"dead-letter-reason": garbage.reason, "dead-letter-source-position": position}, {"was": "garbage"})


def line(key: str, headers: dict[str, str], value: object) -> bytes:
    record = Line(msgspec.json.encode(value), key.encode(), tuple((name, text.encode()) for name, text in headers.items()))
    return encode_line(record)[:-1]


class Served:
    """The whole service in this process, with its own handler and a clock that only the test moves. The simulator feeds it."""

    def __init__(self, directory: Path, strategy: str, *, has_orders: bool = False) -> None:
        self.service = Service(directory, strategy=strategy, has_orders=has_orders)
        settings = ROOT / "conf" / "notification-settings.csv"
        with settings.open(encoding="utf-8", newline="") as file:
            self.service.handler = make_handler(HandlerSettings(), parse_notification_settings(file, str(settings)))
        self.service.start()
        self._worked_at = self.now()
        self.rules = Rules(strategy)
        self.expected = directory / "expected.jsonl"
        self.notifications = directory / "out" / "notifications.jsonl"
        self.dead_letters = directory / "out" / "dead-letters.jsonl"

    def now(self) -> int:
        return self.service.clock.now()

    def pause(self, milliseconds: int) -> None:
        """Let time pass; meanwhile the service runs several cycles per second."""
        until = self.now() + milliseconds
        while self.now() < until:
            self.service.clock.advance(min(500, until - self.now()))
            if self.now() >= self._worked_at + 200:
                self.work()

    def work(self) -> None:
        self._worked_at = self.now()
        self.service.run(cycles=5_000)

    def simulate(self, **fields: Any) -> Summary:
        """Simulate until all input is written and nothing waits any more."""
        plan = Plan(**({"units": 100, "seed": 11, "numbering": Numbering.SHARED, "max_value_bytes": 5 * 1024 * 1024} | fields))
        pacer = Pacer(self.now, self.pause)
        summary = simulate(plan, self.service.directory / "in", self.expected, lambda done, of: None, self.pause, pacer)
        self.pause(60_000)
        return summary

    def verdict(self) -> Verdict:
        return verify_files(self.rules, self.expected, self.notifications, self.dead_letters)


class Operated(Served):
    """A service to which an operator gives orders while it is fed."""

    def __init__(self, directory: Path, strategy: str) -> None:
        super().__init__(directory, strategy, has_orders=True)
        self.random = Random(3)
        self.outcomes = directory / "out" / "orders.jsonl"

    def work(self) -> None:
        super().work()
        waits = self.service.report_units().oldest
        if waits and self.random.random() < 0.2:
            key, seen = self.random.choice(waits)
            kind = self.random.choice((OrderKind.RELEASE, OrderKind.SKIP, OrderKind.HOLD, OrderKind.EXTEND, OrderKind.RETRY))
            order = Order(
                id=f"order-{len(self.service.book.orders([P0], 0))}",
                kind=kind,
                by="anna",
                because="a test",
                at=self.now(),
                unit=key.unit,
                waits_for=seen.waits_for,
                since=seen.since,
                despite_backlog=True,
                for_ms=2_000,
                until=self.now() + 3_000,
            )
            self.service.book.append(key.partition, order)

    def read_log(self) -> OrdersLog:
        book = self.service.book
        return OrdersLog(book.orders([P0], 0), {}, [(P0, each) for each in book.find_without_outcome(P0)], self.now())

    def verdict(self) -> Verdict:
        return verify_files(self.rules, self.expected, self.notifications, self.dead_letters, self.outcomes, self.read_log)


@pytest.fixture
def operated() -> Iterator[Callable[..., Operated]]:
    """Make and start services to which an operator gives orders."""
    made: list[Operated] = []

    def make(directory: Path, strategy: str) -> Operated:
        made.append(Operated(directory, strategy))
        return made[-1]

    yield make
    for each in made:
        each.service.kill()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Make and start services."""
    made: list[Served] = []

    def make(strategy: str = "SEQUENCE", directory: str = "served") -> Served:
        made.append(Served(tmp_path / directory, strategy))
        return made[-1]

    yield make
    for each in made:
        each.service.kill()


@pytest.fixture(name="faultless")
def faultless_fixture() -> Callable[[Run, Rules], Output]:
    return faultless


@pytest.fixture
def shared_samples() -> Path:
    if not SHARED_SAMPLES.is_dir():
        pytest.skip(f"the shared samples are not at {SHARED_SAMPLES}")
    return SHARED_SAMPLES
