"""Which status a group has as a whole: the rule of docs/contract.md, written down a second time so that a mistake shows. Pure."""

from collections.abc import Collection

from notification_service.payments.iso20022.codes import ACCEPTED_STATUSES, GROUP_STATUSES


def find_status_of_all(statuses: Collection[str]) -> str | None:
    """Return the GrpSts or PmtInfSts of payments that have these statuses, None if there is none for them."""
    found = set(statuses)
    if len(found) == 1:
        return next(iter(found & GROUP_STATUSES), None)
    if found == {"ACSC", "ACCC"}:
        return "ACSC"
    ended = found & {"RJCT", "CANC"}
    accepted = found & ACCEPTED_STATUSES
    return "PART" if ended and accepted and not found - ended - accepted else None
