"""The whole service in one process, on real files and a real database, with a clock that only the test moves."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from harness.actors.watched import WatchedActors
from harness.driving import NoChance, wire
from harness.faltering import Mistakes, Place, faltering
from harness.workloads.of_strategies import decoder_of, strategy_of

from guardian.actor_gateway import UnitsReport
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff
from guardian.cycle import Cycle
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.ports import NoOrders, Transport
from guardian.region import RegionLimits
from guardian.resets import RegionCycles
from guardian.takeover import TakeoverBackoff
from guardian.unit_registry import UnitRegistrySettings
from notification_service.connectors.files.operations import FileOperations, SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import Mapping
from notification_service.events.own_data import NO_DATA
from notification_service.events.settings import IPF, EventsSettings, decoding_settings, find_decoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS, PaymentData
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.clock import Instant
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.event import FIRST_FORMAT, Decoder
from resequencer.handler import DataHandler, Handled, Marks
from resequencer.notification import Fact, Notification
from resequencer.record import Partition
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import Storage
from resequencer.turn.turn import TurnContext
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.none import NoneSettings, NoneStorage

TOPIC = "IPF_PROCESSING_DATA"
P0, P1, P2 = (Partition(TOPIC, number) for number in range(3))
BEGINNING: Instant = 1_774_740_000_000
DEADLINE_MS = 21_000


class FakeClock:
    """A clock that moves only on request."""

    def __init__(self, at: Instant = BEGINNING) -> None:
        self.at = at

    def now(self) -> Instant:
        return self.at

    def advance(self, milliseconds: int) -> None:
        self.at += milliseconds


STEP_MS = 5_000
"""The time between two expiries of idle units."""


class Teller:
    """A handler whose notifications repeat what it was given.

    It fails by envelope id: temporarily until the instant in `away_until`, permanently for ids in `never`, and with an unexpected
    error by `mistakes` (the strategy may have those, too). Failures depend only on the clock, so a retry after a crash ends as it
    would have without the crash. For envelopes in `needs_server` the server is unavailable while the clock is within
    `server_away`. With `makes_facts` each notification has a fact.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.away_until: dict[str, Instant] = {}
        self.never: set[str] = set()
        self.raises: dict[str, Exception] = {}
        self.mistakes = Mistakes()
        self.needs_server: frozenset[str] = frozenset()
        self.server_away = range(0)
        self.makes_facts = False

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        identity = envelope.envelope_id
        if identity in self.raises:
            raise self.raises[identity]
        self.mistakes.look(Place.HANDLED, envelope)
        if identity in self.never:
            raise PermanentError("this can never be told")
        if identity in self.needs_server and self._clock.now() in self.server_away:
            raise DependencyUnavailable("server")
        if self._clock.now() < self.away_until.get(identity, 0):
            raise TransientError("the teller is away")
        content = {"flow": envelope.flow, "sequence": envelope.sequence, "data": sorted(name for name, _ in data.mds)}
        headers = [("notification-id", identity.encode())]
        headers += [("incomplete", marks.incomplete.encode())] if marks.incomplete is not None else []
        headers += [("late", b"true")] if marks.late else []
        origin, value = envelope.record.origin, msgspec.json.encode(content)
        facts = (Fact("GROUP", value, (("member", envelope.unit.encode()), *headers), origin),) if self.makes_facts else ()
        return Handled((Notification(identity, envelope.unit, "ACCP", value, tuple(headers), origin),), facts=facts)


class Told(msgspec.Struct, frozen=True):
    """A notification as it stands in the output."""

    number: str
    unit: str
    identity: str
    sequence: int | None
    data: tuple[str, ...]
    incomplete: str | None
    is_late: bool
    is_possible_duplicate: bool

    @property
    def content(self) -> tuple[object, ...]:
        """The fields that must not depend on crashes."""
        return self.identity, self.sequence, self.data, self.incomplete, self.is_late


class Dead(msgspec.Struct, frozen=True):
    """A dead letter as it stands in the output; `value` is its exact bytes."""

    position: str
    reason: str
    value: bytes
    error: str
    is_possible_duplicate: bool


class Plan(msgspec.Struct, frozen=True):
    """How a service is set up."""

    strategy: str = "SEQUENCE"
    settings: StrategySettings | None = None
    records: EventsSettings = EventsSettings(IPF, Mapping())
    storage: str = "embedded"
    batch_size: int = 500
    acknowledge_handled: bool = False
    done_characters: int | None = None
    resequencer: ResequencerSettings = ResequencerSettings()
    registry: UnitRegistrySettings = UnitRegistrySettings()
    retention_ms: int = 4 * 3_600_000
    rotate_bytes: int | None = None
    portion_bytes: int = 16 << 20
    has_orders: bool = False
    has_facts: bool = False
    region: RegionLimits = RegionLimits()
    takes_whole_batches: bool = False
    events: str = FIRST_FORMAT
    mapping: str = ""
    replaced_events: str | None = None
    acknowledge_every_ms: int = 1_000
    first_sequence: int | None = 1


class Service:
    """A worker and its directory. `start`, `stop` and `kill` may follow each other as often as one likes.

    `around_transport`, `around_storage` and `around_decoder` wrap the real ones at each start. `files` replaces the system's file
    operations; `forgotten` counts the units that were idle for long enough while it ran.
    """

    def __init__(self, directory: Path, plan: Plan = Plan(), **changes: Any) -> None:  # noqa: B008 - frozen.
        self.directory = directory
        self.plan = msgspec.structs.replace(plan, **changes)
        self.clock = FakeClock()
        self.handler = Teller(self.clock)
        self.handler.makes_facts = self.plan.has_facts
        self.strategy = strategy_of(self.plan) if self.plan.settings is None else make_strategy(self.plan.settings)
        self.files: FileOperations = SystemFiles()
        self.around_transport: Callable[[Transport], Transport] = lambda transport: transport
        self.around_storage: Callable[[Storage], Storage] = lambda storage: storage
        self.around_decoder: Callable[[Decoder], Decoder] = lambda decoder: decoder
        self.book = OrderFiles(directory / "orders", directory / "out", SystemFiles())
        self.is_stopping = False
        self.pauses: list[int] = []
        self.forgotten = 0
        self.state_file = directory / "state.db"
        self.facts_directory = directory / "facts"
        self._tokens = count(1)
        self._cycle: Cycle | None = None
        self._cycles: RegionCycles | None = None
        self._servers: Servers | None = None
        (directory / "in").mkdir(parents=True, exist_ok=True)

    # Its run

    @property
    def cycle(self) -> Cycle:
        assert self._cycle is not None, "it was not started"
        return self._cycle

    @property
    def cycles(self) -> RegionCycles:
        """The cycles with the resets between them."""
        assert self._cycles is not None, "it was not started"
        return self._cycles

    @property
    def servers(self) -> Servers:
        assert self._servers is not None, "it was not started"
        return self._servers

    def start(self) -> Service:
        plan = self.plan
        first = 1 if plan.settings is None else plan.settings.first_sequence
        decoding = decoding_settings(self.strategy, first, DecodingSettings(needs_sequence=True).max_value_bytes)
        decoder = self.around_decoder(find_decoder(plan.records, decoding) or decoder_of(plan, self.strategy))
        data_handler: DataHandler = LATEST_OBJECTS if plan.records.format == IPF else NO_DATA
        mistakes = getattr(self.handler, "mistakes", Mistakes())
        context = TurnContext(faltering(self.strategy, mistakes), self.handler, data_handler, plan.resequencer, NoChance())
        context = msgspec.structs.replace(context, events=plan.events)
        storage = self._new_storage()
        registry = msgspec.structs.replace(plan.registry, can_reload=storage.is_durable)
        directories = (self.directory / "in", self.directory / "out")
        facts = self.facts_directory if plan.has_facts else None
        own = {"rotate_bytes": plan.rotate_bytes, "has_orders": plan.has_orders, "facts_directory": facts}
        settings = FileSettings(TOPIC, *directories, **own)  # type: ignore[arg-type]
        transport = FileTransport(settings, self._wait, self.files)
        self._servers = Servers(
            self.around_transport(transport),
            self.around_storage(storage),
            WatchedActors(context, decoder.decode, registry),
            self.book if plan.has_orders else NoOrders(),
        )
        retry = RetryWithBackoff(BackoffSettings(), self._wait, lambda: self.is_stopping)
        self.retry = retry
        tools = Tools(decoder, self.clock, retry, lambda: f"token-{next(self._tokens)}", LogRateLimit())
        bounds = (plan.acknowledge_handled, plan.done_characters, plan.retention_ms, plan.portion_bytes)
        cycle_settings = CycleSettings(self.strategy.name, plan.batch_size, 0, *bounds)
        cycle_settings = msgspec.structs.replace(cycle_settings, region=plan.region, takes_whole_batches=plan.takes_whole_batches)
        cycle_settings = msgspec.structs.replace(cycle_settings, events=plan.events, mapping=plan.mapping)
        cycle_settings = msgspec.structs.replace(cycle_settings, replaced_events=plan.replaced_events)
        cycle_settings = msgspec.structs.replace(cycle_settings, acknowledge_every_ms=plan.acknowledge_every_ms)
        self._cycle = Cycle(self._servers, tools, cycle_settings)
        self._cycles = RegionCycles(self._cycle, self._servers, tools, self._wait)
        # The clock stands still between two cycles.
        self._cycle.partitions.postponed_takeovers = TakeoverBackoff(BackoffSettings(0, 0))
        return self

    def stop(self) -> None:
        """Drain, and close everything."""
        self.cycle.close()
        self.kill()

    def kill(self) -> None:
        """Close without draining what the system would close at the end of the process."""
        if self._servers is not None:
            for each in self._servers:
                each.close()
        self._servers = self._cycle = self._cycles = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def run(self, cycles: int = 200, *, expires: bool = False) -> None:
        """Run cycles until nothing moves any more. With `expires`, expire idle units after each cycle."""
        quiet = 0
        for _ in range(cycles):
            quiet = 0 if self.cycle.run_once() or self._has_to_go_on() else quiet + 1
            self.forgotten += self.cycle.expire() if expires else 0
            if quiet == 2:
                return
        raise AssertionError(f"still not quiet after {cycles} cycles")

    def run_after(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.run()

    def live(self, milliseconds: int) -> int:
        """Let time pass without new input: run cycles and expire idle units. Return how many units expired."""
        gone = 0
        for _ in range(milliseconds // STEP_MS):
            self.run_after(STEP_MS)
            gone += self.cycle.expire()
        return gone

    def _has_to_go_on(self) -> bool:
        """Whether a partition waits for its takeover, or output waits for its publication."""
        partitions = self.cycle.partitions
        return bool(partitions.postponed_takeovers.untaken) or any(owned.unpublished for owned in partitions.owned.values())

    def report_units(self) -> UnitsReport:
        return self.servers.actors.report_units()

    # Input

    def put(self, *lines: bytes, partition: int = 0) -> None:
        """Append lines unchanged."""
        with (self.directory / "in" / f"partition-{partition}.jsonl").open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    def tell(self, unit: str, *sequences: int, partition: int = 0, **what: Any) -> None:
        """Append envelopes of a unit, in order of arrival; the id of each is `unit#flow#sequence`."""
        self.put(*(envelope_line(unit, sequence, **what) for sequence in sequences), partition=partition)

    # Output

    @property
    def notifications(self) -> list[Told]:
        return [_told(line) for line in self._lines("notifications")]

    @property
    def facts(self) -> list[dict[str, Any]]:
        """The lines of the facts, in the order in which they left."""
        path = self.facts_directory / "partition-0.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    @property
    def told_as_facts(self) -> list[Told]:
        """The facts of a `Teller`, which say the same as its notifications."""
        return [_told(line | {"key": line["headers"]["member"]}) for line in self.facts]

    @property
    def dead(self) -> list[Dead]:
        return [_dead(line) for line in self._lines("dead-letters")]

    def sequences(self, unit: str) -> list[int | None]:
        return [each.sequence for each in self.notifications if each.unit == unit]

    @property
    def numbers(self) -> list[str]:
        """The numbers of all output, notifications and dead letters, unordered."""
        return [line["number"] for channel in ("notifications", "dead-letters") for line in self._lines(channel)]

    @property
    def stored_positions(self) -> dict[int, int]:
        document = json.loads((self.directory / "out" / "positions.json").read_bytes())
        return {each["partition"]: each["offset"] for each in document["partitions"]}

    def input_size(self, partition: int = 0) -> int:
        return (self.directory / "in" / f"partition-{partition}.jsonl").stat().st_size

    def kept_units(self) -> int:
        """Count the units in the database."""
        with closing(sqlite3.connect(self.state_file)) as connection:
            return int(connection.execute("SELECT count(*) FROM units").fetchone()[0])

    def forget_database(self) -> None:
        """Delete the storage, as after a lost disk."""
        for path in self.directory.glob("state.db*"):
            path.unlink()

    def _lines(self, channel: str) -> Iterator[dict[str, Any]]:
        """Return the lines of the output, with those of rotated files."""
        path = self.directory / "out" / f"{channel}.jsonl"
        return (json.loads(line.content) for _, line in scan_output(path, SystemFiles()))

    def _new_storage(self) -> Storage:
        if self.plan.storage == "none":
            return NoneStorage(NoneSettings(1 << 40), lambda: f"token-{next(self._tokens)}")
        return EmbeddedStorage(EmbeddedSettings(self.state_file), lambda: f"token-{next(self._tokens)}")

    def _wait(self, milliseconds: int, _: object = None) -> None:
        self.pauses.append(milliseconds)


def envelope_line(unit: str, sequence: int | None, flow: str = "A", identity: str | None = None, **objects: Any) -> bytes:
    """Return a line without its newline; `mds` names the message objects of the envelope."""
    mds = [{"uniqueId": name, "objectType": name, "object": {"of": unit}} for name in objects.pop("mds", ())]
    value = wire(unit, flow, sequence, identity or f"{unit}#{flow}#{sequence}", mdsObjects=mds, **objects)
    return encode_line(Line(value, unit.encode(), (("schema-version", b"2"),)))[:-1]


def value_of(line: bytes) -> bytes | None:
    """Return the value of the line's record, None if the line holds no record."""
    decoded = decode_line(line)
    return decoded.value if isinstance(decoded, Line) else None


def _told(line: dict[str, Any]) -> Told:
    headers, value = line["headers"], line["value"]
    return Told(
        line["number"],
        line["key"],
        headers["notification-id"],
        value["sequence"],
        tuple(value["data"]),
        headers.get("incomplete"),
        "late" in headers,
        "possible-duplicate" in headers,
    )


def _dead(line: dict[str, Any]) -> Dead:
    decoded = _as_record(line)
    headers = dict(decoded.headers)
    return Dead(
        headers["dead-letter-source-position"].decode(),
        headers["dead-letter-reason"].decode(),
        decoded.value,
        headers["dead-letter-error"].decode(),
        "possible-duplicate" in headers,
    )


def _as_record(line: dict[str, Any]) -> Line:
    """Return the line as the code that requeues it reads it."""
    decoded = decode_line(json.dumps(line).encode())
    assert isinstance(decoded, Line), decoded
    return decoded
