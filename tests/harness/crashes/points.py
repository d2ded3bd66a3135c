"""Every step of a worker's I/O as a point for a fault: the worker is killed, gets no answer, or loses its partition."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from guardian.ports import PartitionOutput, Polled, Position, PublishRefused, Transport, TransportStatus, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles
from resequencer.record import Partition
from resequencer.storage_port import Commit, Header, PartitionStore, Pending, Snapshot, Storage, StorageUnavailable, Waits

Answer = TypeVar("Answer")


class Crash(BaseException):
    """The process ends here, as by `kill -9`. Our code must not catch it."""


class Fate(Enum):
    """The fate of a step, drawn once before and once after it."""

    GOES_WELL = auto()
    CRASH = auto()
    NO_ANSWER = auto()
    OTHER_OWNER = auto()


class Fates(Protocol):
    """Returns the fate of the step of this number (from 1). Each step has two numbers: before and after."""

    def __call__(self, step: int) -> Fate: ...


class Steps:
    """Counts the I/O steps of the worker, and strikes them. It does nothing while it is not `armed`."""

    def __init__(self, fates: Fates, random: Random) -> None:
        self.count = 0
        self.strikes = 0
        self.crashes = 0
        self.armed = True
        self.names: list[str] = []
        self.random = random
        self._fates = fates

    def fate(self, name: str) -> Fate:
        if not self.armed:
            return Fate.GOES_WELL
        self.count += 1
        fate = self._fates(self.count)
        if fate is not Fate.GOES_WELL:
            self.strikes += 1
            self.crashes += fate is Fate.CRASH
            self.names.append(f"{self.count}: {fate.name} at {name}")
        return fate

    def strike(self, name: str, failure: Exception, other_owner: Callable[[], object] | None = None) -> None:
        fate = self.fate(name)
        if fate is Fate.CRASH:
            raise Crash(name)
        if fate is Fate.NO_ANSWER:
            raise failure
        if fate is Fate.OTHER_OWNER and other_owner is not None:
            other_owner()

    def around(
        self, name: str, call: Callable[[], Answer], failure: Exception, other_owner: Callable[[], object] | None = None
    ) -> Answer:
        self.strike(f"before {name}", failure, other_owner)
        answer = call()
        self.strike(f"after {name}", failure)
        return answer


class StruckFiles(SystemFiles):
    """File operations that change something, with faults. A struck write leaves any beginning of its data behind."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._paths: dict[int, str] = {}

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self._steps.strike(f"opening {path.name}", OSError(errno.EMFILE, "Too many open files"))
        descriptor = super().open(path, flags)
        self._paths[descriptor] = path.name
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        fate = self._steps.fate(f"writing {self._paths[descriptor]}")
        if fate in (Fate.CRASH, Fate.NO_ANSWER):
            super().write(descriptor, bytes(data)[: self._steps.random.randint(0, len(data))])
            raise Crash("a torn write") if fate is Fate.CRASH else OSError(errno.ENOSPC, "No space left on device")
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        name = f"syncing {self._paths[descriptor]}"
        self._steps.around(name, lambda: super(StruckFiles, self).fsync(descriptor), OSError(errno.EIO, "Input/output error"))

    def truncate(self, descriptor: int, length: int) -> None:
        self._steps.strike(f"truncating {self._paths[descriptor]}", OSError(errno.EIO, "Input/output error"))
        super().truncate(descriptor, length)

    def replace(self, source: Path, target: Path) -> None:
        name, failure = f"replacing {target.name}", OSError(errno.EIO, "Input/output error")
        self._steps.around(name, lambda: super(StruckFiles, self).replace(source, target), failure)


class StruckTransport:
    """A transport whose answers get lost."""

    def __init__(self, inner: Transport, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    def standing(self) -> TransportStatus:
        return self._inner.standing()

    def assignment(self) -> Collection[Partition]:
        return self._around("assignment", self._inner.assignment)

    def position(self, partition: Partition) -> Position | None:
        return self._around("position", lambda: self._inner.position(partition))

    def source(self, partition: Partition) -> str:
        return self._inner.source(partition)

    def start_offset(self, partition: Partition) -> int:
        return self._inner.start_offset(partition)

    def end_offset(self, partition: Partition) -> int:
        return self._around("end_offset", lambda: self._inner.end_offset(partition))

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self._around("seek", lambda: self._inner.seek(partition, offset, source_state))

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        """Poll. A poll without an answer would have moved the position, so only a crash may strike after it."""
        self._steps.strike("before poll", TransportUnavailable("no answer to poll"))
        polled = self._inner.poll(max_records, timeout_ms, resting)
        if self._steps.fate("after poll") is Fate.CRASH:
            raise Crash("after poll")
        return polled

    def wake(self) -> None:
        self._inner.wake()

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        self._steps.strike("publish is refused", PublishRefused("the group has moved on"))
        self._around("publish", lambda: self._inner.publish(outputs))

    def close(self) -> None:
        self._inner.close()

    def _around(self, name: str, call: Callable[[], Answer]) -> Answer:
        return self._steps.around(name, call, TransportUnavailable(f"no answer to {name}"))


class StruckStorage:
    """A storage whose answers get lost, and whose partitions other owners open."""

    def __init__(self, inner: Storage, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    @property
    def is_durable(self) -> bool:
        return self._inner.is_durable

    def connect(self) -> None:
        self._inner.connect()

    def open(self, partition: Partition) -> PartitionStore:
        failure = StorageUnavailable("no answer to open")
        store = self._steps.around("open", lambda: self._inner.open(partition), failure)
        return StruckStore(store, self._steps, lambda: self._inner.open(partition))

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        return self._inner.side_by_side(calls)

    def give_up(self, partition: Partition) -> None:
        self._inner.give_up(partition)

    def close(self) -> None:
        self._inner.close()


class StruckStore:
    """One partition of the storage."""

    def __init__(self, inner: PartitionStore, steps: Steps, other_owner: Callable[[], object]) -> None:
        self._inner = inner
        self._steps = steps
        self._other_owner = other_owner

    @property
    def header(self) -> Header:
        return self._inner.header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        return self._around("load", lambda: self._inner.load(units))

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        return self._around("waiting", self._inner.waiting)

    def has_units(self) -> bool:
        return self._around("has_units", self._inner.has_units)

    def pending(self) -> Sequence[Pending]:
        return self._around("pending", self._inner.pending)

    def commit(self, commit: Commit) -> None:
        before = self._inner.header
        try:
            self._around("commit", lambda: self._inner.commit(commit))
        except StorageUnavailable:
            # An owner that got no answer knows no new header, whether the commit was stored or not.
            self._inner._header = before  # type: ignore[attr-defined]
            raise

    def expire(self, until: int, spared: Container[str]) -> int:
        return self._around("expire", lambda: self._inner.expire(until, spared))

    def _around(self, name: str, call: Callable[[], Answer]) -> Answer:
        return self._steps.around(name, call, StorageUnavailable(f"no answer to {name}"), self._other_owner)
