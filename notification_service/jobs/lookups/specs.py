"""The lookups of the service: the columns of each, and how a row becomes a key and a value or is refused."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.spec import (
    FLAW,
    KEYS,
    VALID_FROM,
    VALUE,
    LookupSpec,
    finished,
    key_of,
    missing,
    said,
    value_of,
)
from notification_service.jobs.spark.session import SPARK_ERRORS
from notification_service.lookups.shapes import CUSTOMERS, IBAN, INSTITUTIONS, PROFILES, REASONS, SEPARATOR, SETTINGS
from notification_service.payments.iso20022.codes import NARRATIVE, TRANSACTION_STATUSES
from resequencer.errors import ConfigurationError, words_of
from resequencer.users_code import import_named


def settings(rows: DataFrame, reasons: DataFrame | None) -> DataFrame:
    statuses = F.col("transaction_status").isin(sorted(TRANSACTION_STATUSES))
    flaws = [
        missing("process_flow_name"),
        missing("event_name"),
        (~F.coalesce(statuses, F.lit(False)), F.concat(said("transaction_status"), F.lit("is no ISO code"))),
        (
            F.col("suppressed").isNotNull() & ~F.lower("suppressed").isin("yes", "no"),
            F.concat(said("suppressed"), F.lit("is neither yes nor no")),
        ),
    ]
    if reasons is not None:
        known = F.broadcast(reasons.select(F.col("code").alias("known_code")).distinct())
        rows = rows.join(known, rows["reason_code"] == known["known_code"], "left")
        unknown = F.col("reason_code").isNotNull() & F.col("known_code").isNull()
        flaws.append((unknown, F.concat(said("reason_code"), F.lit("is in no set of status reasons"))))
    suppressed = F.when(F.lower("suppressed") == "yes", "yes")
    is_bare = (F.col("reason_code") == NARRATIVE) & F.col("additional_information").isNull() & suppressed.isNull()
    flaws.append((is_bare, F.concat(said("reason_code"), F.lit("is a narrative, and additional_information is empty"))))
    value = value_of("transaction_status", "reason_code", "additional_information", suppressed)
    keys = F.array(key_of("processing_entity", "process_flow_name", "event_name"))
    return finished(rows, flaws, keys, value, F.col(VALID_FROM))


def reasons(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    flaws = [(~F.coalesce(F.col("code").rlike("^[A-Z0-9]{4}$"), F.lit(False)), F.concat(said("code"), F.lit("is no code")))]
    return finished(rows, flaws, F.array("code"), value_of("name", "definition"))


def institutions(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    """A row with a BIC and a national code is found by both, unless its `kind` names one."""
    kind = F.coalesce("kind", F.lit("both"))
    is_iban = kind == "iban"
    bic = F.upper("bic")
    flaws = [
        (~F.coalesce(F.col("country").rlike("^[A-Z]{2}$"), F.lit(False)), F.concat(said("country"), F.lit("is no country"))),
        (~kind.isin("bank", "bic", "iban", "both"), F.concat(said("kind"), F.lit("is none of bank, bic, iban"))),
        (~is_iban & F.col("name").isNull(), "name is empty"),
        (
            bic.isNotNull() & ~bic.rlike("^[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?$"),
            F.concat(said("bic"), F.lit("is no BIC")),
        ),
        (
            is_iban & ~F.coalesce(F.col("begin").try_cast("int") < F.col("end").try_cast("int"), F.lit(False)),
            F.concat(said("begin"), F.lit("is not before "), said("end")),
        ),
    ]
    keys = F.array_compact(
        F.array(
            F.when(kind.isin("bank", "both") & F.col("bank_code").isNotNull(), key_of(F.lit("bank"), "country", "bank_code")),
            F.when(kind.isin("bic", "both"), F.concat(F.lit(f"bic{SEPARATOR}"), bic)),
            F.when(is_iban, key_of(F.lit("iban"), "country")),
        )
    )
    value = F.when(is_iban, value_of("begin", "end")).otherwise(value_of("name", bic, "country"))
    return finished(rows, flaws, keys, value)


def customers(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    wanted = F.array_compact(F.split(F.regexp_replace("statuses", "[,;\\s]+", " "), " "))
    known = F.array(*map(F.lit, sorted(TRANSACTION_STATUSES)))
    bare = F.regexp_replace("account", "\\s", "")
    account = F.when(bare.rlike(f"^{IBAN}$"), F.upper(bare)).otherwise(bare)
    flaws = [
        (F.col("initiating_party").isNull() & F.col("account").isNull(), "neither initiating_party nor account"),
        (F.size(F.array_except(wanted, known)) > 0, F.concat(said("statuses"), F.lit("are not all ISO codes"))),
        (
            F.col("language").isNotNull() & ~F.col("language").rlike("^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$"),
            F.concat(said("language"), F.lit("is no language (de, de-AT)")),
        ),
        (
            F.col("channel").isNotNull() & ~F.col("channel").rlike("^[A-Za-z0-9._-]{1,35}$"),
            F.concat(said("channel"), F.lit("is no channel: 1 to 35 letters, digits, dots, underscores and hyphens")),
        ),
    ]
    keys = F.array_compact(
        F.array(
            F.when(F.col("initiating_party").isNotNull(), key_of(F.lit("party"), "initiating_party")),
            F.when(F.col("account").isNotNull(), key_of(F.lit("account"), account)),
        )
    )
    day = F.to_date(VALID_FROM).cast("string")
    value = value_of("processing_entity", "language", "channel", F.array_join(wanted, " "), day)
    return finished(rows, flaws, keys, value, F.col(VALID_FROM))


def profiles(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    numbers = ("usual_ms", "latest_ms", "late", "usual_events", "most_events")
    flaws = [
        missing("process_flow"),
        *[(~F.col(name).rlike("^[0-9]{1,15}$"), F.concat(said(name), F.lit("is no whole number"))) for name in numbers],
    ]
    return finished(rows, flaws, F.array(key_of("processing_entity", "process_flow")), value_of(*numbers))


SPECS: dict[str, LookupSpec] = {
    each.name: each
    for each in (
        LookupSpec(REASONS, ("code",), ("name", "definition"), reasons, is_personal=False),
        LookupSpec(
            SETTINGS,
            ("process_flow_name", "event_name", "transaction_status"),
            ("reason_code", "additional_information", "processing_entity", "suppressed", VALID_FROM),
            settings,
            is_personal=False,
        ),
        LookupSpec(
            INSTITUTIONS, ("country",), ("name", "bic", "bank_code", "kind", "begin", "end"), institutions, is_personal=False
        ),
        LookupSpec(
            CUSTOMERS,
            (),
            ("initiating_party", "account", "processing_entity", "language", "channel", "statuses", VALID_FROM),
            customers,
        ),
        LookupSpec(
            PROFILES,
            ("process_flow", "latest_ms"),
            ("processing_entity", "usual_ms", "late", "usual_events", "most_events"),
            profiles,
            is_personal=False,
        ),
    )
}
"""In the order of building: the reasons come before the settings, which are checked against them."""


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
