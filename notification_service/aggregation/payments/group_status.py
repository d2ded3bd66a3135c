"""The status of all payments of a message, or of a payment information, in one code."""

from collections.abc import Collection

from notification_service.payments.iso20022.codes import ACCEPTED_STATUSES, GROUP_STATUSES

_ENDED_WITHOUT = frozenset({"RJCT", "CANC"})
_SETTLED = frozenset({"ACSC", "ACCC"})


def find_group_status(statuses: Collection[str]) -> str | None:
    """Return GrpSts or PmtInfSts of payments with these statuses. Both are of ExternalPaymentGroupStatus1Code.

    One status that is a group code, too: that. ACSC and ACCC: ACSC, which holds for all. Accepted payments beside rejected or
    cancelled ones: PART. Otherwise None; all cancelled is none either, because CANC is no group code.
    """
    found = frozenset(statuses)
    if len(found) == 1:
        (status,) = found
        return status if status in GROUP_STATUSES else None
    if found == _SETTLED:
        return "ACSC"
    is_part = bool(found & ACCEPTED_STATUSES and found & _ENDED_WITHOUT) and found <= ACCEPTED_STATUSES | _ENDED_WITHOUT
    return "PART" if is_part else None
