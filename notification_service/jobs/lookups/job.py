"""The job that builds a release of all lookups and publishes it, or refuses with the reason."""

import shutil
from collections.abc import Callable, Container, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused, NotShared
from notification_service.jobs.lookups.profile_source import learn_profiles
from notification_service.jobs.lookups.reading import (
    check_shares,
    check_values,
    read_sources,
    refuse_changed,
    refuse_incomplete,
    tallied,
    tally_columns,
)
from notification_service.jobs.lookups.shards import (
    IS_CONTRADICTORY,
    KEY,
    ROWS,
    contradictions,
    copy_release,
    resolve,
    shard_count,
    write_table,
)
from notification_service.jobs.lookups.spec import FLAW, LINE, PLACE, TEXT, VALUE, LookupSpec, masked
from notification_service.jobs.lookups.specs import find_specs, keyed_rows
from notification_service.jobs.spark.job_settings import JobSettings, Limits, SourceSettings
from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of
from notification_service.jobs.topic_archive.reading import ArchiveSnapshot
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import ReleaseManifest, Source, Table
from notification_service.lookups.publication import Publication
from notification_service.lookups.release import read_manifest
from notification_service.lookups.shapes import REASONS, NoRelease, ReleaseRefused
from resequencer.clock import Instant
from resequencer.printable import without_secrets

Tell = Callable[[str], None]
"""Called with a line as each step begins: `customers: reading`."""

STEPS = ("reading", "writing")


class BuiltLookup(msgspec.Struct, frozen=True):
    """`doubled` counts good rows beyond the one that counts for its key, `contradictory` the keys that were left out."""

    name: str
    sources: tuple[Source, ...]
    keys: int
    doubled: int
    contradictory: int
    bytes: int


class Built(msgspec.Struct, frozen=True):
    """A published release, and the old releases that were removed."""

    version: str
    lookups: tuple[BuiltLookup, ...]
    quarantine: str | None
    removed: tuple[str, ...]


class _Work(NamedTuple):
    """The result of building one lookup."""

    built: BuiltLookup
    table: Table


def build_lookups(spark: SparkSession, settings: JobSettings, now: Instant, job_version: str, tell: Tell) -> Built:
    """Read, check, write and publish; nothing is published unless all lookups are fit.

    Raises:
        JobRefused: A source or a table is not fit; refused rows are in the quarantine. Or the published release could not be
            copied to `copy_to`.
        ConfigurationError: A user's own lookup cannot be imported.
        NotShared: The tasks do not share the directory.
        PublishingRefused: Another job is working in the directory.
    """
    specs, directory = find_specs(settings.specs), LookupsDirectory(settings.directory)
    with directory.publishing():
        _clear(directory)
        publication = Publication(directory, now, job_version)
        job = _Job(spark, settings, directory, publication, now, tell)
        wanted = [spec for spec in specs if settings.sources.get(spec.name)]
        if not wanted:
            raise JobRefused("no lookup has a source; add sources to the file of sources")
        job.check_given_up({spec.name for spec in wanted})
        works = [job.build(spec) for spec in wanted]
        tables = {work.built.name: work.table for work in works}
        shutil.rmtree(job.staging, ignore_errors=True)
        publication.publish(tables, tuple(source for work in works for source in work.built.sources))
        removed = directory.sweep(settings.keep)
        if settings.copy_to:
            tell(f"copying to {without_secrets(settings.copy_to)}")
            copy_release(spark, directory, publication.version, settings.copy_to, settings.keep)
        quarantine = str(job.quarantine) if job.quarantine.exists() else None
        return Built(publication.version, tuple(work.built for work in works), quarantine, tuple(removed))


class _Job:
    """One run. It keeps the reasons that it has read, because the settings are checked against them."""

    def __init__(
        self,
        spark: SparkSession,
        settings: JobSettings,
        directory: LookupsDirectory,
        publication: Publication,
        now: Instant,
        tell: Tell,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._publication = publication
        self._now = now
        self._today: date = datetime.fromtimestamp(now / 1_000, UTC).date()
        self._tell = tell
        self._before = _find_before(directory)
        self._reasons: DataFrame | None = None
        self._remarks: dict[str, str] = {}
        self.quarantine = directory.quarantine / publication.version
        self.staging = publication.path / ".staging"

    def build(self, spec: LookupSpec) -> _Work:
        """Build one lookup. Raises JobRefused, also for any failure of Spark, such as a vanished file or a full disk."""
        try:
            return self._build(spec, self._settings.sources[spec.name])
        except SPARK_ERRORS as error:
            raise JobRefused(f"{spec.name}: Spark failed: {cause_of(error)}") from error

    def check_given_up(self, wanted: Container[str]) -> None:
        """Raise JobRefused if a lookup of the current release has no source any more: it would lose all its keys."""
        for name, table in self._before.tables.items() if self._before else ():
            if name not in wanted:
                self._check_drop(name, 0, table.rows, "name its sources again")

    def _build(self, spec: LookupSpec, sources: Sequence[SourceSettings]) -> _Work:
        self._tell(f"{spec.name}: {STEPS[0]}")
        reading = read_sources(self._spark, sources, spec, self.staging, self._learn)
        checked = keyed_rows(spec, reading.rows, self._reasons)
        if spec.name == REASONS:
            self._reasons = checked.where(F.col(FLAW).isNull())
        observation = Observation()
        self._set_aside(checked.observe(observation, *tally_columns(sources, spec)), spec)
        found = tallied(sources, spec, observation.get)
        tallies = tuple(msgspec.structs.replace(each, remark=self._remarks.get(each.place)) for each in found)
        refuse_incomplete(reading.counted, tallies)
        check_shares(sources, tallies, self.quarantine / spec.name)
        before = [each for each in self._before.sources if each.table == spec.name] if self._before else []
        check_values(before, tallies, self._settings.limits.value_drop)
        self._tell(f"{spec.name}: {STEPS[1]}")
        return self._written(spec, sources, checked, tallies)

    def _written(
        self, spec: LookupSpec, sources: Sequence[SourceSettings], checked: DataFrame, tallies: tuple[Source, ...]
    ) -> _Work:
        again, observation = Observation(), Observation()
        resolved = resolve(checked.observe(again, *tally_columns(sources, spec)), self._today)
        counts = [F.count("*").alias("keys"), F.sum(ROWS).alias("rows"), F.count_if(IS_CONTRADICTORY).alias("contradictory")]
        pairs = resolved.observe(observation, *counts).where(~F.col(IS_CONTRADICTORY)).select(KEY, VALUE)
        good = sum(each.good for each in tallies)
        table = write_table(pairs, self._publication.table_path(spec.name), shard_count(good))
        refuse_changed(tallies, tallied(sources, spec, again.get))
        keys, contradictory = observation.get["keys"], observation.get["contradictory"]
        if contradictory:
            self._set_aside(contradictions(checked, resolved, self._today), spec, "-contradictions")
        self._check(spec.name, table.rows, keys, contradictory)
        doubled = (observation.get["rows"] or 0) - keys
        return _Work(BuiltLookup(spec.name, tallies, table.rows, doubled, contradictory, table.bytes), table)

    def _learn(self, source: SourceSettings, staged: Path) -> DataFrame:
        if self._settings.learning is None:
            raise JobRefused(f"{source.place}: the job has no learning settings, so it cannot learn from an archive")
        archived = ArchiveSnapshot(self._spark, source.path).read(self._settings.learning.topic)
        learned = learn_profiles(archived, source, self._settings.learning, self._now, staged)
        self._remarks[source.place] = learned.remark
        return learned.rows

    def _set_aside(self, rows: DataFrame, spec: LookupSpec, what: str = "") -> None:
        """Write the flawed rows to the quarantine, one JSON object per row."""
        target = self.quarantine / f"{spec.name}{what}"
        reason, text = F.col(FLAW), F.col(TEXT)
        if spec.is_personal and self._settings.quarantine == "masked":
            reason, text = masked(reason, within="' "), masked(text)
        refused, observation = rows.where(F.col(FLAW).isNotNull()), Observation()
        observed = refused.observe(observation, F.count("*").alias(ROWS))
        observed.select(reason.alias("reason"), F.col(PLACE).alias("source"), LINE, text.alias(TEXT)).write.mode(
            "overwrite"
        ).json(target.absolute().as_uri())
        found = _count_lines(target)
        if found != observation.get[ROWS]:
            raise NotShared(str(target), observation.get[ROWS], found)
        if not found:
            shutil.rmtree(target)
        if self.quarantine.is_dir() and not any(self.quarantine.iterdir()):
            self.quarantine.rmdir()

    def _check(self, name: str, rows: int, keys: int, contradictory: int) -> None:
        limits: Limits = self._settings.limits
        if contradictory > limits.contradictions * keys:
            raise JobRefused(
                f"{name}: {contradictory} of {keys} keys contradict themselves, more than the share {limits.contradictions:g} "
                f"(limits.contradictions); correct the rows in {self.quarantine / name}-contradictions"
            )
        if self._before and name in self._before.tables:
            self._check_drop(name, rows, self._before.tables[name].rows, "check whether the source is complete")

    def _check_drop(self, name: str, rows: int, before: int, remedy: str) -> None:
        if rows < before * (1 - self._settings.limits.row_drop):
            raise JobRefused(
                f"{name}: {rows} {'key' if rows == 1 else 'keys'} after {before} in the release before, a loss of more than the "
                f"share {self._settings.limits.row_drop:g} (limits.row-drop); {remedy}, and raise the limit if the loss is right"
            )


def _find_before(directory: LookupsDirectory) -> ReleaseManifest | None:
    """Return the manifest of the current release; None if it is missing or damaged, since the new release replaces it."""
    try:
        return read_manifest(directory, directory.get_current().version)
    except (NoRelease, ReleaseRefused):
        return None


def _count_lines(directory: Path) -> int:
    found = 0
    for file in directory.glob("part-*"):
        with file.open("rb") as lines:
            found += sum(1 for _ in lines)
    return found


def _clear(directory: LookupsDirectory) -> None:
    """Delete what a job that was killed had built."""
    for unfinished in directory.building.glob("*"):
        shutil.rmtree(unfinished, ignore_errors=True)
