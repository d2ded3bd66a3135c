"""Records of facts, reports and notifications as tasks read them, and the rows that the audit makes of them. Pure."""

from typing import NamedTuple

from resequencer.record import Headers

STATUS, CLOSE, UNREADABLE = "status", "close", "unreadable"
"""The kinds of rows of facts. A close is an operator's command to report a group as it is."""


class RawRecord(NamedTuple):
    """A record: where it is among those of its kind, as numbers and for people. `defect` says why a line is no record.

    `place` ascends within a partition; `order` ascends also from partition to partition.
    """

    partition: int
    place: int
    order: int
    where: str
    key: bytes | None
    headers: Headers
    value: bytes
    defect: str | None = None


class FactRow(NamedTuple):
    """A fact. `place` is its offset in the `partition` of the facts.

    `group` is None for a payment without one. `units` is the amount in hundred-thousandths as digits, None if it is unknown.
    `total` and `control_units` are the NbOfTxs and the CtrlSum of the message, the latter as `units`, maybe with a fraction.
    `source` is the source position of the record. Of a close only the group and `person` are set, of an unreadable record only
    `person`, which is then the problem.
    """

    kind: str
    partition: int
    place: int
    group: str | None = None
    member: str | None = None
    status: str | None = None
    is_late: bool | None = None
    units: str | None = None
    total: int | None = None
    control_units: str | None = None
    instruction: str | None = None
    notification_id: str | None = None
    is_possible_duplicate: bool | None = None
    source_partition: int | None = None
    source_offset: int | None = None
    person: str | None = None


class ReportRow(NamedTuple):
    """A group report. `place` orders the reports; `flaw` says what is wrong with it by itself, None for nothing.

    `counts` and `instruction_counts` are fingerprints of what it says (0 without payment informations), `told` says the former
    for people. `missing` is the mark `incomplete`. `status` is its GrpSts; `status_if_through` is what its counts lead to if all
    payments are there and final. `has_statuses` and `has_no_statuses` say whether its payment informations all have the PmtInfSts
    that they then must have, and whether none of them has any.
    """

    group: str | None
    place: int
    number: int = 0
    is_possible_duplicate: bool = False
    flaw: str | None = None
    counts: int = 0
    instruction_counts: int = 0
    told: str = ""
    total: int | None = None
    control_units: str | None = None
    missing: int | None = None
    closed_by: str | None = None
    status: str | None = None
    status_if_through: str | None = None
    has_statuses: bool = True
    has_no_statuses: bool = True


class NotifiedRow(NamedTuple):
    """A notification of a payment that belongs to a group, by its id and its source position."""

    notification_id: str
    group: str
    member: str | None
    source_partition: int | None
    source_offset: int | None
