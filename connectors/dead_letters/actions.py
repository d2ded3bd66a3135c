"""The actions that operators took on dead letters: which, by whom, when and why."""

from typing import Annotated, ClassVar, TypeAlias

import msgspec

LetterId: TypeAlias = tuple[str, str]
"""A dead letter's number and the digest of its line."""


class _Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
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

    `original_sha256` is in hexadecimal, and of the whole value if the dead letter has only its beginning.
    """

    state: ClassVar[str] = "editing"
    because: str
    original_sha256: str
    value: bytes = msgspec.field(name="value_base64")


class Edited(Requeued, frozen=True, kw_only=True, tag="edited"):
    """The record was written to the input with another value, as `Editing` says; in one step if the transport can."""

    state: ClassVar[str] = "edited"
    because: str
    original_sha256: str
    edited_sha256: str


class Discarded(_Action, frozen=True, kw_only=True, tag="discarded"):
    """An operator decided to do nothing about the dead letter, for the reason in `because`. The dead letter stays stored."""

    state: ClassVar[str] = "discarded"
    because: str


Action: TypeAlias = Requeueing | Requeued | Editing | Edited | Discarded
NEW = "new"
"""The state of a dead letter without actions. Otherwise its state is that of its last action."""
