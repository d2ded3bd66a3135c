"""Which of several rows of a key counts."""

from collections.abc import Callable
from datetime import date

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from notification_service.jobs.lookups.shards import IS_CONTRADICTORY, KEY, ROWS, contradictions, resolve
from notification_service.jobs.lookups.spec import VALUE
from notification_service.jobs.lookups.specs import SPECS
from notification_service.lookups.shapes import CUSTOMERS

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
    channel = F.trim(F.element_at(F.split(VALUE, ","), 3), F.lit('"'))
    values = resolved.select(F.translate(KEY, "\x1f", "|").alias(KEY), F.when(~F.col(IS_CONTRADICTORY), channel), ROWS)
    expected = [
        ("party|alone", "a", 1), ("party|later", "new", 3), ("party|dated", "since", 2), ("party|future", "now", 1),
        ("party|twice", "same", 2), ("party|tie", None, 3), ("party|settled", "new", 3), ("party|own", "users", 2),
        ("party|both", "x", 1), ("account|7", "x", 1),
    ]  # fmt: skip
    assertDataFrameEqual(values, rows.sparkSession.createDataFrame(expected, values.schema))
    contradictory = contradictions(rows, resolved, TODAY).collect()
    assert {each.flaw for each in contradictory} == {"contradicts another row of the key 'party tie' "}
    assert sorted(each.line for each in contradictory) == [12, 13, 14]


def test_a_key_with_very_many_rows_is_one_row_before_it_is_sent_anywhere(
    spark: SparkSession, checked: Callable[..., DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each task first reduces its own rows of a key. The plan aggregates, shuffles the rest, and aggregates again. No row passes
    through Python, and the plan adapts to the sizes of its results.
    """
    spark.conf.set("spark.sql.adaptive.enabled", "true")  # As in a job; the session of the tests does without it.
    try:
        resolve(checked(row("one", "a")), TODAY).explain()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    plan = capsys.readouterr().out
    steps = [name for line in plan.splitlines() for name in ("Aggregate", "Exchange") if name in line]
    assert steps == ["Aggregate", "Exchange", "Aggregate"], plan
    assert "AdaptiveSparkPlan" in plan
    assert "Python" not in plan
