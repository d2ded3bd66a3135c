"""What people did with dead letters, when, and why."""

from typing import Annotated, ClassVar, TypeAlias

import msgspec

LetterId: TypeAlias = tuple[str, str]
"""A dead letter's number and the digest of its line."""


class _Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """`number` and `letter` (a digest) say of which dead letter, `by` and `at` who did it when."""

    number: str
    letter: str
    by: str
    at: str
    state: ClassVar[str]

    @property
    def letter_id(self) -> LetterId:
        return self.number, self.letter


class Requeueing(_Action, frozen=True, kw_only=True, tag="requeueing"):
    """A requeue was begun: the record stands in the partition's input, at byte `beyond` or later, or is still to be appended."""

    state: ClassVar[str] = "requeueing"
    partition: Annotated[int, msgspec.Meta(ge=0, lt=10**9)]
    beyond: Annotated[int, msgspec.Meta(ge=0)]


class Requeued(_Action, frozen=True, kw_only=True, tag="requeued"):
    """The record stands in the input again, durably; `position` is where."""

    state: ClassVar[str] = "requeued"
    position: str


class Discarded(_Action, frozen=True, kw_only=True, tag="discarded"):
    """Nothing is to be done about it; `because` is a person's reason. The dead letter stays where it is."""

    state: ClassVar[str] = "discarded"
    because: str


Action: TypeAlias = Requeueing | Requeued | Discarded
NEW = "new"
"""The state of a dead letter with which nothing was done; that of any other is its last action's."""
