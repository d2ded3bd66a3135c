"""The actions that operators took on dead letters: which, by whom, when and why."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, ClassVar, NamedTuple, TypeAlias

import msgspec

from guardian.headers import (
    DEAD_LETTER_AT,
    DEAD_LETTER_ERROR,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE_POSITION,
    DEAD_LETTER_VALUE_LENGTH,
    DEAD_LETTER_VALUE_SHA256,
    MARKED,
    POSSIBLE_DUPLICATE,
    REQUEUED_FROM,
    REQUEUED_MARK,
    REQUEUED_POSSIBLE_DUPLICATE,
    find_unit,
    own_texts,
)
from notification_service.events.identifiers import shown
from notification_service.payments.wire import WireContext
from resequencer.clock import Instant, instant_of
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.order import is_proposal_open
from resequencer.record import Cut, Headers, Origin, Record

LetterId: TypeAlias = tuple[str, str]
"""A dead letter's number and the digest of its line."""


class _Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="action"):
    """`number` and `letter` (a digest) identify the dead letter; `by` names the person who acted, `at` the instant (text)."""

    number: str
    letter: str
    by: str
    at: str
    state: ClassVar[str]

    @property
    def letter_id(self) -> LetterId:
        return self.number, self.letter


class Requeueing(_Action, frozen=True, kw_only=True, tag="requeueing"):
    """A requeue was begun. The record is in the partition's input at byte `beyond` or later, or still has to be appended."""

    state: ClassVar[str] = "requeueing"
    partition: Annotated[int, msgspec.Meta(ge=0, lt=10**9)]
    beyond: Annotated[int, msgspec.Meta(ge=0)]

    def ended(self, by: str, at: str, position: str) -> "Requeued":
        """Return that it is done, by the person who completed it."""
        return Requeued(number=self.number, letter=self.letter, by=by, at=at, position=position)


class Requeued(_Action, frozen=True, kw_only=True, tag="requeued"):
    """The record was durably written to the input again, at `position`."""

    state: ClassVar[str] = "requeued"
    position: str


class Editing(Requeueing, frozen=True, kw_only=True, tag="editing"):
    """A requeue with `value` in place of the dead letter's own was begun, for the reason in `because`.

    `original_sha256` is in hexadecimal, and of the whole value if the dead letter has only its beginning. With `proposed_by`
    this person wrote the value, and `by` approved it.
    """

    state: ClassVar[str] = "editing"
    because: str
    original_sha256: str
    value: bytes = msgspec.field(name="value_base64")
    proposed_by: str | None = None

    def ended(self, by: str, at: str, position: str) -> "Edited":  # noqa: ARG002 - Of an edit it is the person who edited.
        """Return that it is done, by the person who edited the value, whoever completed it."""
        return Edited(
            number=self.number,
            letter=self.letter,
            by=self.by,
            at=self.at,
            position=position,
            because=self.because,
            original_sha256=self.original_sha256,
            edited_sha256=sha256(self.value).hexdigest(),
            proposed_by=self.proposed_by,
        )


class Edited(Requeued, frozen=True, kw_only=True, tag="edited"):
    """The record was written to the input with another value, as `Editing` says; in one step if the transport can."""

    state: ClassVar[str] = "edited"
    because: str
    original_sha256: str
    edited_sha256: str
    proposed_by: str | None = None


class Discarded(_Action, frozen=True, kw_only=True, tag="discarded"):
    """An operator decided to do nothing about the dead letter, for the reason in `because`. The dead letter stays stored."""

    state: ClassVar[str] = "discarded"
    because: str


class EditProposed(_Action, frozen=True, kw_only=True, tag="edit-proposed"):
    """A person asks a second one to approve an edit with `value`. Nothing was sent. Any later action on the letter ends it.

    `again` and `anyway` are those that the edit was asked with.
    """

    state: ClassVar[str] = "edit-proposed"
    because: str
    value: bytes = msgspec.field(name="value_base64")
    again: bool = False
    anyway: bool = False

    @property
    def sha256(self) -> str:
        return sha256(self.value).hexdigest()

    def is_open(self, now: Instant) -> bool:
        """Whether it may still be approved, if nothing else ended it. One without a readable instant may not."""
        try:
            return is_proposal_open(instant_of(self.at), now)
        except ValueError:
            return False


class EditRejected(_Action, frozen=True, kw_only=True, tag="edit-rejected"):
    """The proposal of an edit was rejected, or taken back by the person who made it."""

    state: ClassVar[str] = "edit-rejected"
    because: str


Deed: TypeAlias = Requeueing | Requeued | Editing | Edited | Discarded
"""An action that does something with the dead letter, or decides that nothing is done."""

Action: TypeAlias = Deed | EditProposed | EditRejected
NEW = "new"
"""The state of a dead letter without actions."""


def find_proposal(history: Sequence[Action], now: Instant) -> EditProposed | None:
    """Return the proposal that is open after these actions on one dead letter, None if there is none."""
    last = history[-1] if history else None
    return last if isinstance(last, EditProposed) and last.is_open(now) else None


def state_after(history: Sequence[Action], now: Instant) -> str:
    """Return the state of a dead letter after these actions on it: that of its last deed, or that an edit is proposed."""
    if find_proposal(history, now) is not None:
        return EditProposed.state
    deeds = [each.state for each in history if not isinstance(each, EditProposed | EditRejected)]
    return deeds[-1] if deeds else NEW


class Edit(NamedTuple):
    """A person's correction of a dead letter: the whole `value` to requeue in place of the letter's own, and the reason.

    `proposed_by` is the person who wrote the value, if a second one approved it.
    """

    value: bytes
    because: str
    proposed_by: str | None = None

    @property
    def sha256(self) -> str:
        return sha256(self.value).hexdigest()


class StoredDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter with its identity.

    `number` is the name that people use. `digest` is that of the stored line: in files, numbers may restart after all state was
    lost, and an action on one dead letter must not apply to another of the same number. `headers` are all headers of the stored
    record, including those that the service added. `edit` is set only on a letter that is about to be requeued corrected.
    `named_unit` is the unit that the record has by a format other than IPF's, empty if it names none; None: the format is IPF's.
    """

    number: str
    digest: str
    headers: Headers
    letter: DeadLetter
    edit: Edit | None = None
    named_unit: str | None = None

    @property
    def letter_id(self) -> LetterId:
        return self.number, self.digest

    @property
    def headers_to_requeue(self) -> Headers:
        """The original record's headers, with those of a requeue in place of those of an earlier one."""
        own = self.letter.record.headers
        kept = tuple(each for each in own if each[0] not in (REQUEUED_FROM, REQUEUED_POSSIBLE_DUPLICATE))
        is_marked = (POSSIBLE_DUPLICATE, MARKED) in self.headers[len(own) :]
        mark = (REQUEUED_MARK,) if is_marked else ()
        return (*kept, *mark, (REQUEUED_FROM, self.number.encode()))

    @property
    def value_to_requeue(self) -> bytes | None:
        return self.letter.record.value if self.edit is None else self.edit.value

    @property
    def sha256(self) -> str:
        """The SHA-256 of the original value in hexadecimal; of the whole one if it was cut."""
        record = self.letter.record
        return record.cut.sha256 if record.cut else sha256(record.content).hexdigest()

    def edited(self, edit: Edit) -> "StoredDeadLetter":
        return msgspec.structs.replace(self, edit=edit)

    def requeueing(self, by: str, at: str, partition: int, beyond: int) -> Requeueing:
        """Return the intent to requeue it, with its edit if it has one."""
        if self.edit is None:
            return Requeueing(number=self.number, letter=self.digest, by=by, at=at, partition=partition, beyond=beyond)
        return Editing(
            number=self.number,
            letter=self.digest,
            by=by,
            at=at,
            partition=partition,
            beyond=beyond,
            because=self.edit.because,
            original_sha256=self.sha256,
            value=self.edit.value,
            proposed_by=self.edit.proposed_by,
        )

    def find_excess(self, max_value_bytes: int) -> str | None:
        """Return why the service would not take the edited value whole; None if it would, or without an edit."""
        length = 0 if self.edit is None else len(self.edit.value)
        if length <= max_value_bytes:
            return None
        return f"the edited value has {length} bytes, max-record-bytes is {max_value_bytes}; make it smaller, or raise the limit"

    @property
    def unit(self) -> str | None:
        """The unit that the record names: by its format, in its value, or in our header; else the record's key, or None."""
        record = self.letter.record
        if self.named_unit is not None:
            return self.named_unit or _find_text(record.key)
        return _find_unit(record.content) or find_unit(record.key, own_texts(record.headers))


def stored_dead_letter(number: str, digest: str, key: bytes | None, headers: Headers, value: bytes | None) -> StoredDeadLetter:
    """Rebuild the dead letter from the stored record. Raises ValueError with the problem if the record is no dead letter."""
    ours = max((at for at, (name, _) in enumerate(headers) if name == DEAD_LETTER_REASON), default=None)
    if ours is None:
        raise ValueError(f"it has no header {DEAD_LETTER_REASON}")
    try:
        fields = {name: text.decode() for name, text in headers[ours:]}
        record = Record(_origin(fields), value, key, headers[:ours], cut=_cut(fields))
        reason, dead_at = DeadLetterReason(fields[DEAD_LETTER_REASON]), instant_of(fields[DEAD_LETTER_AT])
        return StoredDeadLetter(number, digest, headers, DeadLetter(record, reason, fields[DEAD_LETTER_ERROR], dead_at))
    except (KeyError, ValueError) as error:
        raise ValueError(f"its headers cannot be read: {error}") from error


def _origin(fields: Mapping[str, str]) -> Origin:
    text = fields[DEAD_LETTER_SOURCE_POSITION]
    origin = Origin.find(text)
    if origin is None:
        raise ValueError(f"{shown(text)} is no position")
    return origin


def _cut(fields: Mapping[str, str]) -> Cut | None:
    length = fields.get(DEAD_LETTER_VALUE_LENGTH)
    return None if length is None else Cut(int(length), fields[DEAD_LETTER_VALUE_SHA256])


def _find_text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


class _Owned(msgspec.Struct, rename="camel"):
    processing_context: WireContext | None = None


_OWNED = msgspec.json.Decoder(_Owned)


def _find_unit(value: bytes) -> str | None:
    try:
        context = _OWNED.decode(value).processing_context
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return context.unit_of_work_id if context else None
