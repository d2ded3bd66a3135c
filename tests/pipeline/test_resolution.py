"""Which of a key's rows counts."""

from collections.abc import Callable
from datetime import date

import pytest
from pyspark.sql import DataFrame

from enrichment.shapes import CUSTOMERS
from pipeline.lookup_specs import SPECS
from pipeline.resolution import contradictions, resolve

TODAY = date(2026, 6, 1)


def row(party: str, channel: str, since: str | None = None, source: int = 0, account: str | None = None) -> dict[str, object]:
    return {"initiating_party": party, "channel": channel, "valid_from": since, "source": source, "account": account}


@pytest.fixture
def checked(rows_of: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    spec = SPECS[CUSTOMERS]
    return lambda *rows: spec.keyed(rows_of(spec, *rows), None)


def test_the_latest_day_of_the_last_source_counts_and_contradictions_are_refused(checked: Callable[..., DataFrame]) -> None:
    rows = checked(
        row("alone", "a"),
        row("later", "old", "2026-01-01"), row("later", "new", "2026-05-01"), row("later", "older", "2025-01-01"),
        row("dated", "always"), row("dated", "since", "1960-01-01"),
        row("future", "now", "2026-06-01"), row("future", "soon", "2026-06-02"),
        row("only-future", "soon", "2026-06-02"),
        row("twice", "same", "2026-01-01"), row("twice", "same", "2026-01-01"),
        row("tie", "one", "2026-01-01"), row("tie", "other", "2026-01-01"), row("tie", "older", "2025-01-01"),
        row("settled", "one", "2026-01-01"), row("settled", "other", "2026-01-01"), row("settled", "new", "2026-02-01"),
        row("own", "registry", "2026-05-01"), row("own", "users", "2020-01-01", source=1),
        {"initiating_party": "flawed", "channel": "by post"},
        row("both", "x", account="7"),
    )  # fmt: skip
    resolved = resolve(rows, TODAY)
    found = {each.key.replace("\x1f", "|"): each for each in resolved.collect()}
    channel = {
        key.removeprefix("party|"): each.value.split(",")[2].strip('"')
        for key, each in found.items()
        if not each.is_contradictory
    }
    assert channel == {
        "alone": "a", "later": "new", "dated": "since", "future": "now", "twice": "same", "settled": "new", "own": "users",
        "both": "x", "account|7": "x",
    }  # fmt: skip
    assert [key for key, each in found.items() if each.is_contradictory] == ["party|tie"]
    assert found["party|later"].rows == 3
    told = contradictions(rows, resolved, TODAY).collect()
    assert {each.flaw for each in told} == {"contradicts another row of the key party tie"}
    assert sorted(each.line for each in told) == [12, 13, 14]


def test_a_key_with_very_many_rows_is_one_row_before_it_is_sent_anywhere(
    checked: Callable[..., DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each task adds up its own rows of a key first: the plan aggregates, then shuffles, then aggregates what is left. No row
    passes through Python, and plans are adapted to what comes out.
    """
    resolve(checked(row("one", "a")), TODAY).explain()
    plan = capsys.readouterr().out
    steps = [name for line in plan.splitlines() for name in ("Aggregate", "Exchange") if name in line]
    assert steps == ["Aggregate", "Exchange", "Aggregate"], plan
    assert "AdaptiveSparkPlan" in plan
    assert "Python" not in plan
