"""The actions that operators took on dead letters: which, by whom, when and why."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, ClassVar, TypeAlias

import msgspec

from resequencer.clock import Instant, instant_of
from resequencer.order import is_proposal_open

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
