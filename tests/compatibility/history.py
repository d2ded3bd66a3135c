"""The history that a fixture is written in: a whole worker on files, with some storage, killed before what it committed has left.

It ends with units of each kind in two partitions. Which these are is told in `tests/compatibility/test_storages.py`, by hand.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.service_under_test import DEADLINE_MS, P0, P1, TOPIC, Plan, Service, envelope_line
from msgspec.structs import replace

from guardian.ports import PartitionOutput, Transport
from guardian.unit_registry import UnitRegistrySettings
from notification_service.connectors.dead_letters.port import Signature
from notification_service.connectors.files.input_archive import InputArchive
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.suspects import Suspects
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition
from resequencer.storage_port import Storage

MINUTE_MS = 60_000
RETENTION_MS = 4 * 60 * MINUTE_MS
PLAN = Plan(retention_ms=RETENTION_MS)
AT = "2026-03-28T23:33:55.941Z"
SHARE_BYTES = 4_500
"""Of what a turn lets out: four notifications, or fewer where others left the cycle less."""

IDLE = [f"idle-{number}" for number in range(12)]
UNITS = (
    *IDLE,
    "Bäcker|söhne/€ 1",
    "two-flows",
    "given-up",
    "dead-end",
    "waits",
    "waits-for-a-server",
    "tries-again",
    "tries-again-forced",
    "late",
    "lets-out",
    "lets-out-queue",
    "released",
    "other-idle",
    "other-waits",
)
"""All of both partitions."""

PARTITIONS = (P0, P1)
DEADLY = InFlightEnvelope(7, Origin(P0, 99_999), "deadly", CallKind.HANDLING, "ab" * 24)
"""What a worker had in flight when it was killed."""

Wrap = Callable[[Service], Storage]


class FromNamedLogs:
    """A transport whose logs have a name, as topics have."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def source(self, partition: Partition) -> str:
        return f"the log of partition {partition.number}"


class KilledWhilePublishing(Exception):
    """The process ends here."""


class CutOff:
    """A transport to which nothing of one cycle comes through any more."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        raise KilledWhilePublishing


def new_service(directory: Path, storage: Wrap | None = None) -> Service:
    """On this directory, not started yet. Its handler fails on the same envelopes in each history."""
    service = Service(directory, PLAN)
    handler, begin = service.handler, service.clock.now()
    handler.never = {"dead-end#A#2", "dead-end#A#3", "given-up#A#7"}
    handler.needs_server = frozenset({"waits-for-a-server#A#1"})
    handler.server_away = range(begin, begin + 60 * MINUTE_MS)
    handler.away_until = dict.fromkeys(("tries-again#A#1", "tries-again-forced#B#3"), begin + 60 * MINUTE_MS)
    service.around_transport = FromNamedLogs
    if storage is not None:
        service.around_storage = lambda _: storage(service)
    return service


def live(service: Service) -> None:
    """Three owners one after the other. The last is killed between a commit and what should have left by it."""
    service.start()
    _begin(service)
    service.stop()
    _lose_positions(service)
    service.start()
    _go_on(service)
    service.kill()
    _operate(service)
    service.plan = replace(PLAN, registry=UnitRegistrySettings(budget_bytes=SHARE_BYTES))
    service.start()
    _begin_to_wait(service)
    _be_cut_off(service)


def _begin(service: Service) -> None:
    """Units that are idle, a few in each commit."""
    for unit in IDLE[:8]:
        service.tell(unit, 2, 1, mds=("PAIN_001", "PAIN_001_PAYMENT_TRANSACTION"))
        service.run_after(1_000)
    service.put(
        envelope_line(
            "Bäcker|söhne/€ 1",
            1,
            mds=("PAIN_001",),
            pdsObjects=[{"uniqueId": "p", "name": "Profile", "objectType": "T", "object": {"Nm": "Müller & Söhne"}}],
            customObjects=[{"uniqueId": "c", "key": "BusinessData", "value": [1, "zwei", None]}],
        )
    )
    service.tell("other-idle", 1, 2, partition=1, mds=("PAIN_001",))
    service.put(b"no envelope", partition=1)
    service.run_after(1_000)


def _lose_positions(service: Service) -> None:
    """As a broker forgets them: what the records that were read so far cause may repeat."""
    (service.directory / "out" / "positions.json").unlink()


def _go_on(service: Service) -> None:
    """The envelopes that are given up, come late, or cannot be told; flows beside each other."""
    for unit in IDLE[8:]:
        service.tell(unit, 1)
        service.run_after(1_000)
    service.put(*(envelope_line("two-flows", number, flow) for flow, number in (("A", 1), ("B", 2), ("A", 3), ("B", 4))))
    service.tell("given-up", 1, 5, 7)
    service.tell("dead-end", 1, 2)
    service.tell("late", 3)
    service.run()
    service.run_after(DEADLINE_MS)
    service.tell("given-up", 3)
    service.run_after(1_000)


def _operate(service: Service) -> None:
    """What people do, and a supervisor, while no worker runs."""
    directory = service.directory
    archive = InputArchive(directory / "archive", SystemFiles())
    assert len([*archive.move(directory / "in" / "partition-1.jsonl", service.stored_positions[1])]) == 1
    store = FileDeadLetterStore(FileSettings(TOPIC, directory / "in", directory / "out"), lambda: Signature("operator", AT))
    letters = {each.unit or "": each for each in store.letters()}
    assert [*store.begin()] == []
    store.discard([letters["dead-end"].letter_id], "agreed with the bank")
    assert all(each.problem is None for each in store.requeue([letters[""]]))
    store.close()
    Suspects(directory).count(DEADLY, "killed by signal 11")


def _begin_to_wait(service: Service) -> None:
    """What is to be released in the last moment first."""
    service.tell("released", 4, 2, partition=1)
    service.put(*(envelope_line("tries-again-forced", number, "B") for number in (5, 3)))
    service.run()
    service.run_after(DEADLINE_MS - 5_000)
    service.put(*(envelope_line("waits", number, flow, mds=("PAIN_001",)) for flow, number in (("A", 5), ("B", 3), ("A", 4))))
    service.tell("other-waits", 2, 9, partition=1)
    service.tell("lets-out", 6, 5, 4, 3, 2)
    service.tell("waits-for-a-server", 2, 1)
    service.tell("tries-again", 1, 2)
    service.run()


def _be_cut_off(service: Service) -> None:
    """The deadlines of the first come, with arrivals that let out more than a turn's share."""
    service.clock.advance(5_000)
    service.tell("released", 9, partition=1)
    service.tell("late", 1, 2)
    service.tell("dead-end", 3)
    service.tell("lets-out", 1)
    service.tell("lets-out-queue", 1, 4, 2)
    cycle = service.cycle
    cut_off = CutOff(cycle._transport)
    cycle._transport = cycle._portions._transport = cut_off
    try:
        for _ in range(10):
            cycle.run_once()
    except KilledWhilePublishing:
        return
    raise AssertionError("nothing was to leave")
