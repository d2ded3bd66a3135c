"""One status for all payments of a message, where there is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.aggregation.payments.report import find_group_status
from notification_service.payments.iso20022.codes import ACCEPTED_STATUSES, GROUP_STATUSES, TRANSACTION_STATUSES


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ("ACCC", "ACCC"),
        ("RJCT", "RJCT"),
        ("ACSC", "ACSC"),
        ("PDNG", "PDNG"),
        ("ACSC ACCC", "ACSC"),
        ("ACCC RJCT", "PART"),
        ("ACCC CANC", "PART"),
        ("ACSC ACCC RJCT CANC", "PART"),
        ("ACWP RJCT", "PART"),
        ("CANC", None),
        ("BLCK", None),
        ("RJCT CANC", None),
        ("ACSC ACSP", None),
        ("ACCC PDNG", None),
        ("ACCC RJCT PDNG", None),
        ("", None),
    ],
)
def test_the_status_of_a_group(statuses: str, status: str | None) -> None:
    assert find_group_status(statuses.split()) == status


@given(st.sets(st.sampled_from(sorted(TRANSACTION_STATUSES))))
def test_it_is_a_group_code_or_none(statuses: set[str]) -> None:
    assert find_group_status(statuses) in GROUP_STATUSES | {None}


def test_the_accepted_statuses_are_those_that_the_code_set_calls_so() -> None:
    assert sorted(ACCEPTED_STATUSES) == ["ACCC", "ACCP", "ACFC", "ACFW", "ACIS", "ACPD", "ACSC", "ACSP", "ACTC", "ACWC", "ACWP"]
