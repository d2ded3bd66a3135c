"""A dead letter as it is filed: known by its number, and made again of the record that left."""

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from connectors.dead_letters.actions import LetterId
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.identifiers import shown
from domain.record import Cut, Headers, Origin, Partition, Record
from domain.wire import WireContext

REQUEUED_FROM = "requeued-from"
"""The header that carries the number of the dead letter: what a requeued record is recognised by."""

_FIRST_OF_OURS = "dead-letter-reason"
_POSITION = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})@(0|[1-9][0-9]{0,18})", re.DOTALL)


class StoredDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter and what it is known by.

    `number` is what people name it by. `digest` is that of its line: in files numbers may begin again where all state was lost,
    and what was done with one letter must not be taken for another's. `headers` are all that it has, ours included.
    """

    number: str
    digest: str
    headers: Headers
    letter: DeadLetter

    @property
    def letter_id(self) -> LetterId:
        return self.number, self.digest

    @property
    def headers_to_requeue(self) -> Headers:
        """Those that the record came with, and the mark in place of one that an earlier requeue gave it."""
        kept = tuple(each for each in self.letter.record.headers if each[0] != REQUEUED_FROM)
        return (*kept, (REQUEUED_FROM, self.number.encode()))

    @property
    def unit(self) -> str | None:
        """The unit that the value names if it can be read that far, else the record's key; None if there is neither."""
        record = self.letter.record
        return _find_unit(record.value) or (None if record.key is None else record.key.decode("utf-8", "replace"))


def stored_dead_letter(number: str, digest: str, key: bytes | None, headers: Headers, value: bytes) -> StoredDeadLetter:
    """Of the record that left. Raises ValueError with what is wrong with it, if it is no dead letter."""
    ours = max((at for at, (name, _) in enumerate(headers) if name == _FIRST_OF_OURS), default=None)
    if ours is None:
        raise ValueError(f"it has no header {_FIRST_OF_OURS}")
    try:
        said = {name: text.decode() for name, text in headers[ours:]}
        record = Record(_origin(said), value, key, headers[:ours], cut=_cut(said))
        reason, dead_at = DeadLetterReason(said[_FIRST_OF_OURS]), _instant(said["dead-letter-at"])
        return StoredDeadLetter(number, digest, headers, DeadLetter(record, reason, said["dead-letter-error"], dead_at))
    except (KeyError, ValueError) as error:
        raise ValueError(f"its headers cannot be read: {error}") from error


def _origin(said: Mapping[str, str]) -> Origin:
    text = said["dead-letter-source-position"]
    position = _POSITION.fullmatch(text)
    if position is None:
        raise ValueError(f"{shown(text)} is no position")
    return Origin(Partition(position[1], int(position[2])), int(position[3]))


def _cut(said: Mapping[str, str]) -> Cut | None:
    length = said.get("dead-letter-value-length")
    return None if length is None else Cut(int(length), said["dead-letter-value-sha256"])


def _instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class _Owned(msgspec.Struct, rename="camel"):
    processing_context: WireContext | None = None


_OWNED = msgspec.json.Decoder(_Owned)


def _find_unit(value: bytes) -> str | None:
    try:
        context = _OWNED.decode(value).processing_context
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return context.unit_of_work_id if context else None
