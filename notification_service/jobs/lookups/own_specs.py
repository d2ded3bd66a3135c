"""Imports a user's own lookups, named as `package.module:NAME`, and translates their errors into those of the job."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.rows import FLAW
from notification_service.jobs.lookups.spec import KEYS, VALID_FROM, VALUE, LookupSpec
from notification_service.jobs.lookups.specs import SPECS
from notification_service.jobs.spark.errors import SPARK_ERRORS
from resequencer.errors import ConfigurationError, words_of
from resequencer.users_code import import_named


def find_specs(own: Mapping[str, str]) -> list[LookupSpec]:
    """Return the service's lookups in the order of building, then the user's own in the order of `own` (places by name).

    Raises:
        ConfigurationError: A lookup cannot be imported, or has another name.
    """
    return [*SPECS.values(), *(_find(name, place) for name, place in own.items())]


def _find(name: str, place: str) -> LookupSpec:
    path = f"specs.{name}"
    try:
        spec = import_named(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Importing runs a user's code, which may raise anything.
        problem = f"{place!r} cannot be imported ({words_of(error)}); is its package on the Python path?"
        raise ConfigurationError(path, problem) from error
    if not isinstance(spec, LookupSpec):
        raise ConfigurationError(path, f"{place!r} is a {type(spec).__name__}; name a LookupSpec")
    if spec.name != name:
        raise ConfigurationError(path, f"{place!r} is the lookup {spec.name!r}; write specs.{spec.name}, or call it {name!r}")
    return spec


def keyed_rows(spec: LookupSpec, rows: DataFrame, reasons: DataFrame | None) -> DataFrame:
    """Call the lookup's `keyed`; return the rows with keys, value, day and flaw.

    Raises:
        JobRefused: `keyed` failed, or left a column out.
    """
    try:
        keyed = spec.keyed(rows, reasons)
    except SPARK_ERRORS:
        raise
    except Exception as error:
        raise JobRefused(f"{spec.name}: its columns cannot be made: {words_of(error)}") from error
    lacking = [name for name in (KEYS, VALUE, VALID_FROM, FLAW) if name not in getattr(keyed, "columns", ())]
    if lacking:
        raise JobRefused(f"{spec.name}: its `keyed` returned rows without the column {', '.join(lacking)}; return finished(…)")
    return keyed
