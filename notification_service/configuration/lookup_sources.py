"""Reads the file that describes the sources of the lookups."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.hocon import Plain, parse_file, resolve
from notification_service.configuration.resolution import find_shipped
from notification_service.configuration.schema import path_of, settings_from
from notification_service.configuration.sections import Ingress, TransportType
from notification_service.lookups.shapes import CUSTOMERS, INSTITUTIONS, PROFILES, REASONS, SETTINGS
from notification_service.payments.strategies import StrategySettings
from resequencer.errors import ConfigurationError
from resequencer.keys.value_types import Foreign, Mismatch

if TYPE_CHECKING:
    from notification_service.jobs.spark.job_settings import JobSettings, LearningSettings, SourceSettings

NAMES = (SETTINGS, REASONS, INSTITUTIONS, CUSTOMERS, PROFILES)
_SOURCES, _SPECS, _LIMITS, _MASTER = "sources.", "specs.", "limits.", "spark.master"
_OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_COPY_TO, _QUARANTINE = "copy-to", "quarantine"


class Job(StrEnum):
    """The jobs, by their names in the file."""

    LOOKUPS = "lookups"
    ARCHIVE_TOPICS = "archive-topics"
    AUDIT = "audit"


_OF_ALL = "spark.options."
_OF_EACH = {job: f"spark.{job}.options." for job in Job}
_OPTIONS = (_OF_ALL, *_OF_EACH.values())


class SparkSettings(NamedTuple):
    """Spark's settings: `master` as for `spark-submit`; `application` is the name of the job in Spark's pages."""

    master: str
    options: dict[str, str]
    application: str


def load_job_settings(configuration: Configuration) -> "JobSettings":
    """The settings of the job.

    Raises:
        ConfigurationError: The file cannot be read, or something in it is unknown or wrong.
    """
    from notification_service.jobs.spark.job_settings import JobSettings, Limits, Quarantine

    file, values = _read(configuration)
    spark, specs = _spark_settings(values, file, Job.LOOKUPS), _own_specs(values, file)
    limits = {path.removeprefix(_LIMITS): value for path, value in values.items() if path.startswith(_LIMITS)}
    return JobSettings(
        configuration.lookups.directory,
        configuration.lookups.keep,
        {name: tuple(_sources(values, name, file, configuration)) for name in (*NAMES, *specs)},
        _converted(limits, Limits, f"{file}: limits"),
        spark.master,
        spark.options,
        _learning_settings(configuration),
        str(values.get(_COPY_TO) or ""),
        _converted(values.get(_QUARANTINE, "masked"), Quarantine, f"{file}: {_QUARANTINE}"),
        spark.application,
        specs,
    )


def _own_specs(values: Mapping[str, Plain], file: Path) -> dict[str, str]:
    """Return where each of the user's own lookups is described (`package.module:NAME`), by the lookup's name."""
    specs = {path.removeprefix(_SPECS): value for path, value in values.items() if path.startswith(_SPECS)}
    for name, place in specs.items():
        at = f"{file}: {_SPECS}{name}"
        if not _OWN_NAME.fullmatch(name) or name in NAMES:
            allowed = f"up to 63 of a-z, 0-9 and -, and none of {', '.join(NAMES)}"
            raise ConfigurationError(at, f"{name!r} is no name for a lookup of your own; use {allowed}")
        try:
            Foreign("NAME", "").read(place if place is not None else "")
        except Mismatch as error:
            raise ConfigurationError(at, f"{place!r} is refused; write package.module:NAME, where a LookupSpec is") from error
        if not values.get(_SOURCES + name):
            raise ConfigurationError(at, f"it has no sources; name them, {_SOURCES}{name} = [{{ format = csv, path = … }}]")
    return {name: str(place) for name, place in specs.items()}


def _learning_settings(configuration: Configuration) -> "LearningSettings":
    from notification_service.jobs.spark.job_settings import LearningSettings

    strategy = settings_from(StrategySettings, configuration.resequencer)
    return LearningSettings(strategy, configuration.ingress.topic, configuration.ingress.max_record_bytes)


def load_spark_settings(configuration: Configuration, job: Job) -> SparkSettings:
    """Where a job runs, and how.

    Raises:
        ConfigurationError: The file cannot be read, or something in it is unknown or a duration.
    """
    file, values = _read(configuration)
    return _spark_settings(values, file, job)


def _read(configuration: Configuration) -> tuple[Path, Mapping[str, Plain]]:
    file = find_shipped(configuration.lookups.sources)
    values = resolve([parse_file(file)]).values
    _refuse_unknown(values, file)
    return file, values


def _spark_settings(values: Mapping[str, Plain], file: Path, job: Job) -> SparkSettings:
    """Merge options for all jobs with those for this job, which win."""
    for path, value in values.items():
        if path.startswith(_OPTIONS) and isinstance(value, timedelta):
            problem = 'is read as a duration by HOCON; put it in quotes, as in "512m"'
            raise ConfigurationError(f"{file}: {path}", problem)
    options = {
        path.removeprefix(prefix): str(value)
        for prefix in (_OF_ALL, _OF_EACH[job])
        for path, value in values.items()
        if path.startswith(prefix)
    }
    return SparkSettings(str(values.get(_MASTER, "local[*]")), options, f"resequencer {job}")


def _refuse_unknown(values: Mapping[str, Plain], file: Path) -> None:
    own = (path.removeprefix(_SPECS) for path in values if path.startswith(_SPECS))
    known = (*(_SOURCES + name for name in (*NAMES, *own)), _MASTER, _COPY_TO, _QUARANTINE)
    for path, value in values.items():
        if path in known or path.startswith((_SPECS, _LIMITS, *_OPTIONS)) or value == {}:
            continue
        near = get_close_matches(path, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        own_one = f"; a lookup of your own needs {_SPECS}{path.removeprefix(_SOURCES)}" if path.startswith(_SOURCES) else ""
        raise ConfigurationError(f"{file}: {path}", f"unknown key{meant}{own_one}")


def _sources(values: Mapping[str, Plain], name: str, file: Path, configuration: Configuration) -> Iterator["SourceSettings"]:
    from notification_service.jobs.spark.job_settings import SourceSettings

    listed = values.get(_SOURCES + name, [])
    path = f"{file}: {_SOURCES}{name}"
    if not isinstance(listed, list):
        raise ConfigurationError(path, "must be a list of sources: [{ format = csv, path = … }]")
    for number, described in enumerate(listed):
        at = f"{path}[{number}]"
        source = _converted(described, SourceSettings, at)
        if source.format == "archive":
            yield _of_archive(source, name, at, configuration)
        else:
            _check(source, at)
            yield msgspec.structs.replace(source, path=_found(source.path))


def _check(source: "SourceSettings", at: str) -> None:
    needs = {"jdbc": ("url", "table"), "csv": ("path",), "parquet": ("path",), "iso-codes": ("path",)}.get(source.format, ())
    missing = next((each for each in needs if not getattr(source, each)), None)
    if missing is not None:
        raise ConfigurationError(at, f"{missing} is missing; {source.format} needs it")
    if source.format == "csv" and len(source.delimiter) != 1:
        raise ConfigurationError(at, f"delimiter {source.delimiter!r} is refused; give one character")
    if not 0 <= source.required_good_share <= 1:
        raise ConfigurationError(at, "required-good-share is a share, from 0 to 1")


def _of_archive(source: "SourceSettings", name: str, at: str, configuration: Configuration) -> "SourceSettings":
    """Return a source that learns from the archive: the configured one, unless the source names another."""
    if name != PROFILES:
        raise ConfigurationError(at, f"archive: only {PROFILES} can be learned from an archive; name another format")
    if source.days < 1 or source.least_late < 1:
        raise ConfigurationError(at, "days and least-late are whole numbers from 1 on")
    if not source.path and configuration.ingress.transport is not TransportType.KAFKA:
        problem = f"files have no arrival times, so there is no archive to learn from ({path_of(Ingress, 'transport')} = file)"
        raise ConfigurationError(at, f"{problem}; name the path of an archive made from Kafka, or give your own profiles")
    return msgspec.structs.replace(source, path=source.path or configuration.archive.location)


def _found(path: str) -> str:
    return str(find_shipped(Path(path))) if path and "://" not in path and "*" not in path else path


def _converted(value: object, kind: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(path, f"is refused: {error}") from error
