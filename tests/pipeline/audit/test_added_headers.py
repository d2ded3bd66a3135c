"""The audit compares the headers that later versions added, and takes their absence in earlier output for no deviation."""

import pytest

from domain.record import Headers
from pipeline.audit.finding import Deviation
from pipeline.audit.observed import ObservedNotification, observe
from pipeline.audit.unit_audit import differences

BEFORE: Headers = (("notification-id", b"N1"), ("source-position", b"T-0@17"), ("event-name", b"PaymentReceived"))
ADDED: Headers = (("transaction-status", b"RCVD"), ("processing-entity", b"BANK_001"))


def seen(headers: Headers) -> ObservedNotification:
    found = observe(headers, b'{"CstmrPmtStsRpt": {}}', 0)
    assert found is not None
    return found


def test_output_of_a_version_before_them_is_no_deviation() -> None:
    assert list(differences(seen((*BEFORE, *ADDED)), seen(BEFORE))) == []


@pytest.mark.parametrize(
    "added",
    [
        (("transaction-status", b"ACSC"), ADDED[1]),
        (ADDED[0], ("processing-entity", b"BANK_002")),
        (ADDED[0],),
    ],
)
def test_another_value_is_one_and_so_is_a_missing_entity(added: Headers) -> None:
    (found,) = differences(seen((*BEFORE, *ADDED)), seen((*BEFORE, *added)))
    assert found[0] is Deviation.WRONG_HEADERS


def test_another_header_of_earlier_output_still_is_one() -> None:
    (found,) = differences(seen((*BEFORE, *ADDED)), seen((*BEFORE[:2], ("event-name", b"Other"))))
    assert found[0] is Deviation.WRONG_HEADERS
