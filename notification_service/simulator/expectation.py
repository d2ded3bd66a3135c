"""The simulator's expectations: the lines of `expected.jsonl`. They assume no strategy.

A line is one unit or one expected dead letter, distinguished by `type`. A process that writes the file holds a shared lock on
it.
"""

from hashlib import blake2b

import msgspec

from resequencer.record import Headers


def record_digest(key: bytes | None, headers: Headers, value: bytes | None) -> str:
    """Return a digest of all bytes of a record, 32 hexadecimal digits."""
    return blake2b(msgspec.msgpack.encode((key, headers, value)), digest_size=16).hexdigest()


class ExpectedProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process object. `status` and `notification_id` are None if the shipped settings have no row for the event."""

    event: str
    flow: str
    status: str | None = None
    reason: str | None = None
    notification_id: str | None = None


class ExpectedEnvelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """One envelope. `arrived` is its place among the unit's envelopes in order of first writing, from 1; None if it is lost.

    `parts`, `custom` and `pds` name the MDS types (in the first spelling), custom keys and PDS names that it carries.
    `duplicates` counts further records of the same content, `conflicts` those of other content under its id. The first of them
    counts: `processes` are its events. Each refused conflict has an expectation of its own in the file.

    `digest` is that of the record that counts, where a record leaves as it came.
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
    digest: str | None = None

    @property
    def is_lost(self) -> bool:
        return self.arrived is None


class ExpectedMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pain.001 message of a payment, in the words of the message. Messages that differ in any field are different ones.

    `party` is a digest of the initiating party, `created_at` the CreDtTm, `total` the NbOfTxs and `control_sum` the CtrlSum.
    """

    message_id: str
    party: str = ""
    created_at: str = ""
    total: str | None = None
    control_sum: str | None = None


class ExpectedUnit(msgspec.Struct, frozen=True, omit_defaults=True, tag="unit"):
    """One unit of work, with its envelopes in their true order.

    The three references are those of the original message, one of each part of the pain.001. A reference is None if it does not
    fit the schema of a pain.002 (1 … 35 characters); then it is not checked. `lasts_ms` is the planned time between the unit's
    first and last record without late ones; 0 if no time was planned. `message` is None if the payment's message has no id of its
    own; `amount` is the instructed or equivalent amount without its currency.
    """

    unit: str
    partition: int
    numbering: str
    envelopes: tuple[ExpectedEnvelope, ...]
    message_id: str | None = None
    payment_information_id: str | None = None
    end_to_end_id: str | None = None
    lasts_ms: int = 0
    message: ExpectedMessage | None = None
    amount: str | None = None

    @property
    def flows(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.flow for each in self.envelopes))


class ExpectedGarbage(msgspec.Struct, frozen=True, tag="garbage"):
    """A line that must become a dead letter; `offset` is where the line begins, in bytes.

    It is no envelope, or an envelope with an earlier envelope's id and other content.
    """

    kind: str
    partition: int
    offset: int
    reason: str


Expected = ExpectedUnit | ExpectedGarbage
