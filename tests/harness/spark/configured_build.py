"""Jobs as a configuration describes them, on a Spark that runs already."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from harness.waiting import wait_ms

from notification_service.configuration.configuration import load
from notification_service.configuration.lookup_sources import load_job_settings
from notification_service.configuration.transports import copied_settings
from notification_service.jobs.lookups.job import Built, build_lookups
from notification_service.jobs.spark.session import java_options
from notification_service.jobs.topic_archive.streaming import Archiver
from notification_service.jobs.topic_archive.writer import ArchiveSettings
from notification_service.supervision.system_clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive_as_configured(spark: SparkSession, file: Path) -> None:
    """Archive what is there, as `resequencer archive-topics` does."""
    configuration = load(file)
    kafka = copied_settings(configuration)
    settings = ArchiveSettings(configuration.archive.location, kafka.topics.all, java_options(kafka.consumer))
    with closing(Archiver(spark, settings, kafka, SystemClock(), wait_ms)) as archiver:
        archiver.run(lambda _: None, lambda: False, is_continuous=False)


def build_as_configured(spark: SparkSession, file: Path, *overrides: str) -> Built:
    """Build what `resequencer lookups build` builds with this file; its relative paths are those of the working directory."""
    return build_lookups(spark, load_job_settings(load(file, overrides)), SystemClock().now(), "test", lambda _: None)
