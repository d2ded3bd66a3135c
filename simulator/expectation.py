"""What the simulator expects to come out: the lines of `expected.jsonl`. No strategy is assumed.

A line is one unit or one dead letter to come, told apart by its `type`. Whoever writes the file holds a shared lock on it.
"""

import msgspec


class ExpectedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process object. `status` and `notification_id` are None where the shipped settings have no row for the event."""

    event: str
    flow: str
    status: str | None = None
    reason: str | None = None
    notification_id: str | None = None


class ExpectedEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """One envelope. `arrived` is its place among the unit's envelopes as first written, from 1; None if it is lost.

    `parts`, `custom` and `pds` name the MDS types (in the first spelling), custom keys and PDS names that it carries.
    `duplicates` are further records that say the same, `conflicts` those that say something else under its id. Which of
    them counts is the one that came first: `processes` are its events, and each of the others has a line of its own here.
    """

    envelope_id: str
    flow: str
    sequence: int
    processes: tuple[ExpectedProcess, ...] = ()
    parts: tuple[str, ...] = ()
    custom: tuple[str, ...] = ()
    pds: tuple[str, ...] = ()
    arrived: int | None = None
    late: bool = False
    duplicates: int = 0
    conflicts: int = 0

    @property
    def is_lost(self) -> bool:
        return self.arrived is None


class ExpectedUnit(msgspec.Struct, frozen=True, omit_defaults=True, tag="unit"):
    """One unit of work, its envelopes in the order in which they happened.

    The three references are the original message's, of the three parts of the pain.001; None where the value does not fit
    the schema of a pain.002 (1 … 35 characters), so that nothing is said about what a report makes of it. `lasts_ms` is
    the time that was planned between its first record and its last, late ones aside; 0 where no time was planned.
    """

    unit: str
    partition: int
    numbering: str
    envelopes: tuple[ExpectedEnvelope, ...]
    message_id: str | None = None
    payment_information_id: str | None = None
    end_to_end_id: str | None = None
    lasts_ms: int = 0

    @property
    def flows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.flow for each in self.envelopes))


class ExpectedGarbage(msgspec.Struct, frozen=True, tag="garbage"):
    """A line that must become a dead letter, by where it was written (the byte offset of its beginning).

    It is no envelope, or one that says something else under an envelope id that came before.
    """

    kind: str
    partition: int
    offset: int
    reason: str


Expected = ExpectedUnit | ExpectedGarbage
