"""Where the audit of groups reads: the files of facts and reports, or their topics."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import PositionsFile
from notification_service.connectors.kafka.core.topic_names import KafkaTopics
from notification_service.jobs.audit.groups.fact_rows import fact_rows, notified_rows
from notification_service.jobs.audit.groups.job import GroupRecords
from notification_service.jobs.audit.groups.raw import rows_of_lines, rows_of_records
from notification_service.jobs.audit.groups.report_rows import report_rows
from notification_service.jobs.audit.groups.tables import FACT, NOTIFIED, REPORT
from notification_service.jobs.audit.lines import Portion, cut_up, output_portions, partition_files
from notification_service.jobs.audit.rows import RECORD


class GroupDirectories(NamedTuple):
    """`facts` holds the facts and the commands of operators; `reports` the reports and how far the facts are counted."""

    facts: Path
    reports: Path


def groups_of_files(spark: SparkSession, directories: GroupDirectories, notifications: Sequence[Portion]) -> GroupRecords:
    """Return the records as they are now. `notifications` are portions that were found before.

    How far facts are counted is read first, then reports, then facts: so no report lacks the facts that it stands on.
    """
    positions = PositionsFile(directories.reports / "positions.json", SystemFiles()).read()
    read_to = {} if positions is None else {each.number: at.offset for each, at in positions.partitions.items()}
    reports = list(output_portions(RECORD, directories.reports / "completions.jsonl"))
    files = partition_files(directories.facts)
    facts = [portion for path, number in files for portion in cut_up(RECORD, path, number, 0, 0)]
    return GroupRecords(
        rows_of_lines(spark, facts, fact_rows, FACT),
        rows_of_lines(spark, reports, report_rows, REPORT),
        rows_of_lines(spark, list(notifications), notified_rows, NOTIFIED),
        read_to,
    )


def groups_of_topics(topics: KafkaTopics, read: Callable[[str], DataFrame], read_to: Mapping[int, int]) -> GroupRecords:
    """Return the records of the topics of facts, of reports and of notifications."""
    return GroupRecords(
        rows_of_records(read(topics.facts), "facts", fact_rows, FACT),
        rows_of_records(read(topics.reports), "group reports", report_rows, REPORT),
        rows_of_records(read(topics.notifications), "notifications", notified_rows, NOTIFIED),
        read_to,
    )
