"""The engine knows events, units and order. What an event says is known to those who read it: payments are one use."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_PAYMENTS = re.compile(r"pain[._]?00|\bmds|\bpds|custom.?(data|object)|process.?object|payment-status", re.IGNORECASE)


def test_the_engine_names_nothing_that_payments_bring() -> None:
    files = [each for place in ("resequencer", "guardian", "storage") for each in (ROOT / place).rglob("*.py")]
    assert len(files) > 50
    lines = [(each, line) for each in files for line in each.read_text(encoding="utf-8").splitlines()]
    assert [(str(each.relative_to(ROOT)), line.strip()) for each, line in lines if OF_PAYMENTS.search(line)] == []


def test_the_words_are_found_where_they_belong() -> None:
    text = (ROOT / "notification_service/payments/envelope.py").read_text(encoding="utf-8")
    assert {"PAIN_00", "mds", "pds"} <= {each[0] for each in OF_PAYMENTS.finditer(text)}
