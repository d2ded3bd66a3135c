"""The settings of groups."""

import msgspec

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class PaymentsSettings(msgspec.Struct, frozen=True):
    """When a group is complete and how long it may take, in milliseconds.

    A payment is through with one of the `final_statuses`. A group that is not complete `deadline_ms` after its first status is
    reported incomplete. What changes after a report is reported again `amend_after_ms` after the first change. `retention_ms`
    after the last change a reported group ends: its members are forgotten, and `ended_retention_ms` later its head.
    `target_type` is `report` or `report-xml`.
    """

    final_statuses: frozenset[str] = frozenset({"ACCC", "RJCT", "CANC"})
    amend_after_ms: int = _HOUR_MS
    deadline_ms: int = 48 * _HOUR_MS
    retention_ms: int = 7 * _DAY_MS
    ended_retention_ms: int = 90 * _DAY_MS
    target_type: str = "report"
