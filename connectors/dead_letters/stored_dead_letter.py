"""A dead letter as it is stored: known by its number, and made again of the record that left."""

from collections.abc import Mapping

import msgspec

from connectors.dead_letters.actions import LetterId
from domain.clock import instant_of
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.headers import (
    DEAD_LETTER_AT,
    DEAD_LETTER_ERROR,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE_POSITION,
    DEAD_LETTER_VALUE_LENGTH,
    DEAD_LETTER_VALUE_SHA256,
    REQUEUED_FROM,
)
from domain.identifiers import shown
from domain.record import Cut, Headers, Origin, Record
from domain.wire import WireContext


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
    ours = max((at for at, (name, _) in enumerate(headers) if name == DEAD_LETTER_REASON), default=None)
    if ours is None:
        raise ValueError(f"it has no header {DEAD_LETTER_REASON}")
    try:
        said = {name: text.decode() for name, text in headers[ours:]}
        record = Record(_origin(said), value, key, headers[:ours], cut=_cut(said))
        reason, dead_at = DeadLetterReason(said[DEAD_LETTER_REASON]), instant_of(said[DEAD_LETTER_AT])
        return StoredDeadLetter(number, digest, headers, DeadLetter(record, reason, said[DEAD_LETTER_ERROR], dead_at))
    except (KeyError, ValueError) as error:
        raise ValueError(f"its headers cannot be read: {error}") from error


def _origin(said: Mapping[str, str]) -> Origin:
    text = said[DEAD_LETTER_SOURCE_POSITION]
    origin = Origin.find(text)
    if origin is None:
        raise ValueError(f"{shown(text)} is no position")
    return origin


def _cut(said: Mapping[str, str]) -> Cut | None:
    length = said.get(DEAD_LETTER_VALUE_LENGTH)
    return None if length is None else Cut(int(length), said[DEAD_LETTER_VALUE_SHA256])


class _Owned(msgspec.Struct, rename="camel"):
    processing_context: WireContext | None = None


_OWNED = msgspec.json.Decoder(_Owned)


def _find_unit(value: bytes) -> str | None:
    try:
        context = _OWNED.decode(value).processing_context
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return context.unit_of_work_id if context else None
