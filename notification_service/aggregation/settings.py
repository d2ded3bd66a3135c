"""The settings of aggregation: of the facts, of the payments of a message, and of users' own stores. Durations are in ms."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key, NamedSections, Section
from resequencer.keys.list_types import Names
from resequencer.keys.value_types import Choice, Duration, FilePath, Foreign, Switch, TopicName, Whole

PAYMENTS = "payments"
"""The name of the store of the payments of messages."""


class ReportType(StrEnum):
    """What the value of a group report is: the pain.002 as JSON, or as an XML text."""

    REPORT = "report"
    REPORT_XML = "report-xml"


class StoreSettings(msgspec.Struct, frozen=True):
    """A store of a user's own: two callables, `package.module:callable`."""

    apply: Annotated[str | None, Key(Foreign("callable", "none; each store needs one"))]
    on_value: Annotated[str | None, Key(Foreign("callable", "nothing follows"))]


class AggregationWorkerSettings(msgspec.Struct, frozen=True):
    """The aggregation workers: `count` of them run beside a service."""

    count: Annotated[int, Key(Whole(0, 64))]


class AggregationSettings(msgspec.Struct, frozen=True):
    """All settings of aggregation."""

    is_enabled: Annotated[bool, Key(Switch(), "enabled")]
    worker: Annotated[AggregationWorkerSettings, Section("worker")]
    directory: Annotated[Path, Key(FilePath("<run-directory>/groups"))]
    facts_topic: Annotated[str, Key(TopicName(), "facts.topic")]
    facts_directory: Annotated[Path, Key(FilePath("<run-directory>/facts"), "facts.directory")]
    values_topic: Annotated[str, Key(TopicName(), "values.topic")]
    reports_topic: Annotated[str, Key(TopicName(), "reports.topic")]
    dead_letters_topic: Annotated[str, Key(TopicName(), "dead-letters.topic")]
    target_type: Annotated[ReportType, Key(Choice(tuple(ReportType)))]
    final_statuses: Annotated[tuple[str, ...], Key(Names("a list of ISO 20022 status codes, such as [ACCC, RJCT, CANC]"))]
    amend_after_ms: Annotated[int, Key(Duration("0s", "7d"))]
    deadline_ms: Annotated[int, Key(Duration("1s", "365d"))]
    retention_ms: Annotated[int, Key(Duration("1s", "365d"))]
    ended_retention_ms: Annotated[int, Key(Duration("1s", "3650d"))]
    store_defaults: Annotated[StoreSettings, Section("store-defaults")]
    stores: Annotated[tuple[tuple[str, StoreSettings], ...], NamedSections("stores", "store-defaults")]

    @property
    def worker_count(self) -> int:
        """How many aggregation workers run beside a service: none without aggregation."""
        return self.worker.count if self.is_enabled else 0
