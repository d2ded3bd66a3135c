"""What a power cut leaves of files, computed from a trace of `faulty_disk.c`: the system's memory is lost, the disk stays.

The model is harsher than real file systems. Any part of the unsynced data may have reached the disk, in sectors, in any order.
The data of a failed sync never reaches the disk unless it is written again, though a reader of the file sees it.
Names are created and removed in order. Until their directory is synced, any number of these changes may be missing on disk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from harness.disk.faulty_disk import Call

_HEAD = struct.Struct("IIIIq")
_SECTOR = 512


class Event(NamedTuple):
    """A call that changed something below the root; `data` of RENAME and LINK is the other name."""

    call: Call
    went_well: bool
    path: Path
    offset: int
    data: bytes


def read_trace(file: Path) -> Iterator[Event]:
    """Yield the events in their order. A record without its end was cut by the exit of its writer."""
    data, at = file.read_bytes(), 0
    while at + _HEAD.size <= len(data):
        call, went_well, path_bytes, data_bytes, offset = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        end = at + path_bytes + data_bytes
        if end > len(data):
            return
        path = Path(data[at : at + path_bytes].decode())
        yield Event(Call(call), bool(went_well), path, offset, data[at + path_bytes : end])
        at = end


@dataclass
class _Inode:
    """`durable` is on the disk, `pending` (writes; cuts have no data) only in memory."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self, *, went_well: bool) -> None:
        for change in self.pending if went_well else ():
            _apply(self.durable, *change)
        self.pending.clear()

    def after_the_cut(self, survives: Callable[[], bool]) -> bytes:
        content = bytearray(self.durable)
        for offset, data in self.pending:
            if data is None:
                if survives():
                    _apply(content, offset, None)
            else:
                for start in _sectors(offset, len(data)):
                    if survives():
                        _apply(content, *_part(offset, data, start))
        return bytes(content)


class Disk:
    """Takes the events below `root` one by one. `cut` writes the files that a power cut would leave at this point.

    `durable` are the contents at the beginning, by path.
    """

    def __init__(self, root: Path, durable: Mapping[Path, bytes] = MappingProxyType({})) -> None:
        self._root = root
        self._inodes = {path: _Inode(bytearray(content)) for path, content in durable.items()}
        self._durable_names = dict(self._inodes)
        self._names: list[dict[Path, _Inode]] = []

    def take(self, event: Event) -> None:
        path, other = event.path, Path(event.data.decode()) if event.call in Call.RENAME | Call.LINK else None
        if event.call is Call.OPEN:
            self._inodes[path] = _Inode()
            self._note_names()
        elif event.call is Call.UNLINK:
            del self._inodes[path]
            self._note_names()
        elif other is not None:
            self._inodes[other] = self._inodes[path] if event.call is Call.LINK else self._inodes.pop(path)
            self._note_names()
        elif event.call is Call.SYNC and path not in self._inodes:
            self._sync_names(path, went_well=event.went_well)
        else:
            self._change(self._inodes[path], event)

    def cut(self, directory: Path, random: Random, survival: float) -> None:
        """Write what a power cut leaves. Each unsynced sector survives with this probability."""
        kept = random.randint(0, len(self._names)) if survival else 0
        names = self._names[kept - 1] if kept else self._durable_names
        for path, inode in names.items():
            file = directory / path.relative_to(self._root)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(inode.after_the_cut(lambda: random.random() < survival))

    def _change(self, inode: _Inode, event: Event) -> None:
        if event.call is Call.SYNC:
            inode.sync(went_well=event.went_well)
        else:
            inode.pending.append((event.offset, event.data if event.call is Call.WRITE else None))

    def _note_names(self) -> None:
        self._names.append(dict(self._inodes))

    def _sync_names(self, directory: Path, *, went_well: bool) -> None:
        if went_well:
            synced = {path: inode for path, inode in self._inodes.items() if path.parent == directory}
            others = {path: inode for path, inode in self._durable_names.items() if path.parent != directory}
            self._durable_names = others | synced
            self._names = [self._durable_names | {p: i for p, i in each.items() if p.parent != directory} for each in self._names]


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """Apply a write, or, without data, a cut to `offset`. A gap is filled with zeros."""
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def _sectors(offset: int, size: int) -> Iterator[int]:
    """Yield where each sector's part of a write begins."""
    return iter({offset, *range(offset - offset % _SECTOR + _SECTOR, offset + size, _SECTOR)})


def _part(offset: int, data: bytes, start: int) -> tuple[int, bytes]:
    end = start - start % _SECTOR + _SECTOR
    return start, data[start - offset : end - offset]
