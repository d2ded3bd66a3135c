import json
from pathlib import Path

import pytest

from notification_service.payments.iso20022.codes import GROUP_STATUSES, STATUS_REASONS, TRANSACTION_STATUSES


@pytest.mark.parametrize(
    ("codes", "name"),
    [
        (GROUP_STATUSES, "external_payment_group_status_code"),
        (TRANSACTION_STATUSES, "external_payment_transaction_status_code"),
        (STATUS_REASONS, "external_status_reason_code"),
    ],
)
def test_the_codes_are_those_of_the_published_sets(codes: frozenset[str], name: str, samples: Path) -> None:
    published = json.loads((samples / "code-sets" / f"{name}.json").read_text(encoding="utf-8"))
    assert codes == set(published["codes"])


def test_every_code_has_four_characters_as_the_schema_allows() -> None:
    assert {len(code) for code in GROUP_STATUSES | TRANSACTION_STATUSES | STATUS_REASONS} == {4}


def test_a_transaction_may_be_cancelled_but_a_group_may_not() -> None:
    assert "CANC" in TRANSACTION_STATUSES - GROUP_STATUSES
