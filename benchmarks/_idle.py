"""Makes idle units as the service leaves them, in any number, under random names."""

import secrets
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice

from msgspec.structs import replace

from benchmarks._worker import PARTITION
from guardian.cycle import Cycle
from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.decoding import DecodingSettings, EnvelopeDecoder
from resequencer.batch import UnitKey
from resequencer.envelope import DataEnvelope
from resequencer.record import Origin, Record
from resequencer.storage_port import Snapshot, UnitChange

AT_ONCE = 1_000


def random_name(name: str) -> str:
    """Return a random-looking name, always the same for the same name, so that names are spread over an index."""
    return blake2b(name.encode(), digest_size=8).hexdigest()


def renamed(lines: list[bytes]) -> list[bytes]:
    """Return the same traffic under random unit names, as real payments have them, so that an index is hit everywhere."""
    units = [_unit_of(line) for line in lines]
    return [line.replace(unit.encode(), random_name(unit).encode()) for line, unit in zip(lines, units, strict=True)]


class Idle:
    """Makes idle units like the finished ones in the worker's storage.

    `lines` are the lines that the worker has read.
    """

    def __init__(self, cycle: Cycle, lines: list[bytes]) -> None:
        self._cycle = cycle
        self._held = cycle.partitions.owned[PARTITION]
        self._names = _names()
        heard = {_unit_of(line): line for line in lines}
        _store_idle(cycle)
        snapshots = self._held.store.load(list(heard))
        over = [each for each in snapshots.values() if each.payment_data is not None and not each.stash]
        self._samples = [(each, _envelope(heard[each.unit])) for each in over]

    @property
    def bytes_each(self) -> float:
        """The bytes to store per unit: state, payment data and name."""
        kept = [len(each.state) + len(each.payment_data or b"") + len(each.unit) for each, _ in self._samples]
        return sum(kept) / len(kept)

    def store(self, count: int) -> None:
        """Add so many units that only the storage knows."""
        for units in self._batches(count):
            changes = [_change(name, each) for name, (each, _) in units]
            self._held.store.commit(self._held._commit(secrets.token_hex(8), tuple(changes)))

    def keep_alive(self, count: int) -> None:
        """Add so many units with a live actor: each was restored, and got an envelope that it knew already."""
        actors, now = self._cycle._actors, self._cycle._tools.clock.now()
        for units in self._batches(count):
            known = {UnitKey(PARTITION, name): sample for name, sample in units}
            actors.prepare(now, tuple(known), {}, {})
            arrivals = {key: (envelope,) for key, (_, envelope) in known.items()}
            decided = actors.decide(now, arrivals, {key: snapshot for key, (snapshot, _) in known.items()})
            assert all(each.change is None for each in decided.turns), "they are duplicates"

    def _batches(self, count: int) -> Iterator[list[tuple[str, tuple[Snapshot, DataEnvelope]]]]:
        samples = (self._samples[number % len(self._samples)] for number in range(count))
        units = zip(self._names, samples, strict=False)
        while batch := list(islice(units, AT_ONCE)):
            yield batch


def _store_idle(cycle: Cycle) -> None:
    """Let the storage have the units in which nothing waits: storage `none` gets a unit when it is idle for long."""
    registry = cycle._actors._registry
    settings = registry._settings
    registry._settings = replace(settings, idle_timeout_ms=0)
    cycle.run_once()
    registry._settings = settings


def _change(name: str, like: Snapshot) -> UnitChange:
    """Return a unit with bytes of its own, as if just used; otherwise a storage in memory would share them between units."""
    return UnitChange(name, _copied(like.state), payment_data=_copied(like.payment_data or b""))


def _copied(content: bytes) -> bytes:
    return bytes(bytearray(content))


def _names() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield random_name(f"idle-{number}")


def _unit_of(line: bytes) -> str:
    key = _read(line).key
    assert key is not None
    return key.decode()


def _envelope(line: bytes) -> DataEnvelope:
    read = _read(line)
    envelope = EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode(Record(Origin(PARTITION, 0), read.value))
    assert isinstance(envelope, DataEnvelope)
    return envelope


def _read(line: bytes) -> Line:
    read = decode_line(line)
    assert isinstance(read, Line)
    return read
