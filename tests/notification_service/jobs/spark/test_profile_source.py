"""The profiles that the job learns from an archive."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from harness.driving import wire
from pyspark.sql import DataFrame, SparkSession

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.profile_source import Learned, learn_profiles
from notification_service.jobs.lookups.specs import SPECS
from notification_service.jobs.spark.job_settings import LearningSettings, SourceSettings
from notification_service.lookups.shapes import PROFILES
from notification_service.payments.strategies import StrategySettings

NOW = 1_790_000_000_000
DAY_MS = 86_400_000
SCHEMA = (
    "partition int, offset long, timestamp long, timestamp_type int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
LEARNING = LearningSettings(StrategySettings("STRICT_SEQUENCE"), "IPF_PROCESSING_DATA", 1_000_000)
LONG = "\N{EURO SIGN}" * 250


class Records:
    """Records in the order of their offsets, over two partitions. By default they were sent a minute before now."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def add(self, value: bytes | None, after_ms: int | None = 0, partition: int = 0) -> None:
        at = -1 if after_ms is None else NOW - 60_000 + after_ms
        self.rows.append((partition, len(self.rows), at, 0, b"", value, [("schema-version", b"2")]))

    def tell(self, unit: str, *arrivals: tuple[int, int], flow: str = "A", entity: str | None = None, partition: int = 0) -> None:
        """Add envelopes with these numbers and times of arrival."""
        for number, after_ms in arrivals:
            context = {"unitOfWorkId": unit} | ({"processingEntity": entity} if entity else {})
            value = wire(unit, flow, number, f"{unit}#{number}", processingContext=context)
            self.add(value, after_ms, partition)

    def late_by(self, waits_ms: Iterable[int], flow: str, entity: str | None = None) -> None:
        """Add a unit for each wait; its first envelope comes so long after the second."""
        for number, wait_ms in enumerate(waits_ms):
            self.tell(f"{flow[:9]}-{entity}-{number}", (2, 0), (1, wait_ms), flow=flow, entity=entity, partition=number % 2)


def learned_of(spark: SparkSession, records: Records, staged: Path) -> Learned:
    archived = spark.createDataFrame(records.rows, SCHEMA)
    return learn_profiles(archived, SourceSettings("archive", "there", least_late=3), LEARNING, NOW, staged)


@pytest.fixture(scope="module")
def learned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """The profiles learned from the data of all these tests at once; the tests use different flows."""
    records = Records()
    records.late_by([*range(1, 1_000), 45_678, 9_123_456], "Ranks")
    records.late_by([10, 20, 30], "Entities", "BANK_001")
    records.late_by([500, 600], "Entities", "BANK_002")
    records.tell("in-turn", *((number, number) for number in range(1, 8)), flow="InTurn")
    records.late_by([10, 20, 30], LONG)
    records.tell("old", (2, -31 * DAY_MS), (1, -30 * DAY_MS), flow="Old")
    records.tell("again", (2, 0), (2, 0), (1, 50), (1, 900), flow="Again")
    for value in (b"garbage", None, b"{}", b"\xff" * 10):
        records.add(value)
    records.add(wire("timeless", "Timeless", 2, "t2"), None)
    return learned_of(spark, records, tmp_path_factory.mktemp("staging") / "profiles")


@pytest.fixture(scope="module")
def profiles(learned: Learned) -> dict[tuple[str, str], tuple[str | None, ...]]:
    """The profiles by flow and entity: usual and latest wait, number of waits, usual and largest number of events."""
    return {(row["process_flow"], row["processing_entity"]): tuple(json.loads(row["value"])) for row in keyed(learned.rows)}


def keyed(rows: DataFrame) -> list[Any]:
    return SPECS[PROFILES].keyed(rows, None).collect()


Profiles = dict[tuple[str, str], tuple[str | None, ...]]


def test_ranks_are_exact_of_numbers_that_are_rounded_up_to_three_digits(profiles: Profiles) -> None:
    """1 000 of 1 001 is the 99.9th percentile."""
    assert profiles["Ranks", ""] == ("501", "45700", "1001", "2", "2")


def test_an_entity_has_a_profile_of_its_own_and_counts_for_any_too(profiles: Profiles) -> None:
    assert profiles["Entities", "BANK_001"] == ("20", "30", "3", "2", "2")
    assert profiles["Entities", ""] == ("30", "600", "5", "2", "2")


def test_of_too_few_no_latest_is_learned(profiles: Profiles) -> None:
    assert profiles["Entities", "BANK_002"] == ("500", None, "2", "2", "2")
    assert profiles["Again", ""] == ("50", None, "1", "2", "2"), "duplicates count nowhere"


def test_a_flow_that_never_waits_has_events_all_the_same(profiles: Profiles) -> None:
    assert profiles["InTurn", ""] == (None, None, "0", "7", "7")


def test_what_is_too_old_does_not_say_when_it_came_or_cannot_be_looked_up_teaches_nothing(profiles: Profiles) -> None:
    assert {flow for flow, _ in profiles} == {"Ranks", "Entities", "InTurn", "Again"}


def test_what_was_read_is_counted_and_what_taught_nothing(learned: Learned) -> None:
    records = 2 * 1_001 + 2 * 5 + 7 + 2 * 3 + 4 + 4 + 1
    assert learned.remark == f"records of 30 days: {records:,}; of these no envelopes: 4, without a timestamp: 1"


def test_what_was_learned_becomes_keys_without_a_flaw(learned: Learned) -> None:
    rows = keyed(learned.rows)
    assert {row["flaw"] for row in rows} == {None}
    assert "BANK_001\x1fEntities" in {row["keys"][0] for row in rows}


def test_records_that_never_say_when_they_came_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    records = Records()
    records.add(wire("timeless", "A", 2, "t2"), None)
    records.add(b"garbage")
    with pytest.raises(JobRefused, match=r"there: none of its 2 records .* remove it from the sources of completion-profiles"):
        learned_of(spark, records, tmp_path / "staged")


def test_profiles_of_ones_own_are_refused_where_they_are_no_numbers(rows_of: Callable[..., DataFrame]) -> None:
    rows = rows_of(
        SPECS[PROFILES],
        {"process_flow": "A", "latest_ms": "5000"},
        {"process_flow": "A", "latest_ms": "5s"},
        {"latest_ms": "5000"},
    )
    assert [row["flaw"] for row in keyed(rows)] == [
        None, "latest_ms '5s' is no whole number", "process_flow is empty",
    ]  # fmt: skip
