"""The lookups: for each its columns, and how a row becomes a key and a value or is refused.

All of it is column expressions. A lookup's `keyed` adds `keys` (an array: a row may have several), `value`, `valid_from` (days
since 1970, null where there is none) and `flaw`.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from enrichment.shapes import CUSTOMERS, IBAN, INSTITUTIONS, LONGEST_KEY_BYTES, PROFILES, REASONS, SEPARATOR, SETTINGS
from pipeline.lookups.rows import FLAW, LINE, PLACE, SOURCE, TEXT, first_flaw, said
from resequencer.handlers.iso20022.codes import NARRATIVE, TRANSACTION_STATUSES

KEYS, VALUE, VALID_FROM = "keys", "value", "valid_from"
_DAY = r"^\d{4}-\d{1,2}-\d{1,2}([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
"""Perhaps with a time, as a database says it; `to_date` looks at nothing behind a T or a blank."""
Flaw = tuple[Column, str | Column]


class LookupSpec(NamedTuple):
    """`required` columns a source must have, `optional` ones it may. `keyed` gets the reasons' codes, as rows with `code`."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    keyed: Callable[[DataFrame, DataFrame | None], DataFrame]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.required + self.optional


def _finished(rows: DataFrame, flaws: list[Flaw], keys: Column, value: Column, day: Column | None = None) -> DataFrame:
    """With the flaws that any row of any lookup may have."""
    cells = [name for name in rows.columns if name not in (SOURCE, PLACE, LINE, TEXT, FLAW)]
    no_day: list[Flaw] = []
    if day is not None:
        is_day = day.rlike(_DAY) & F.to_date(day).isNotNull()
        no_day = [(day.isNotNull() & ~is_day, F.concat(said(VALID_FROM), F.lit("is no day (2026-03-28)")))]
    common: list[Flaw] = [
        (F.size(KEYS) == 0, "no key"),
        (F.exists(KEYS, lambda key: F.octet_length(key) > LONGEST_KEY_BYTES), f"a key of more than {LONGEST_KEY_BYTES} bytes"),
        (F.concat_ws("", *cells).rlike(r"[\x00-\x1f]"), "a control character"),
    ]
    keyed = rows.withColumn(KEYS, keys)
    flaw = F.coalesce(F.col(FLAW), first_flaw(*flaws, *no_day, *common))
    days = F.lit(None).cast("int") if day is None else F.unix_date(F.to_date(day))
    return keyed.withColumns({FLAW: flaw, VALUE: value, VALID_FROM: days})


def _value(*columns: str | Column) -> Column:
    return F.to_json(F.array(*[F.col(each) if isinstance(each, str) else each for each in columns]))


def _key(*parts: str | Column) -> Column:
    """A null part is an empty one."""
    texts = [F.coalesce(F.col(each), F.lit("")) if isinstance(each, str) else each for each in parts]
    return F.concat_ws(SEPARATOR, *texts)


def _missing(name: str) -> Flaw:
    return F.col(name).isNull(), f"{name} is empty"


def settings(rows: DataFrame, reasons: DataFrame | None) -> DataFrame:
    statuses = F.col("transaction_status").isin(sorted(TRANSACTION_STATUSES))
    flaws = [
        _missing("process_flow_name"),
        _missing("event_name"),
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
    value = _value("transaction_status", "reason_code", "additional_information", suppressed)
    keys = F.array(_key("processing_entity", "process_flow_name", "event_name"))
    return _finished(rows, flaws, keys, value, F.col(VALID_FROM))


def reasons(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    flaws = [(~F.coalesce(F.col("code").rlike("^[A-Z0-9]{4}$"), F.lit(False)), F.concat(said("code"), F.lit("is no code")))]
    return _finished(rows, flaws, F.array("code"), _value("name", "definition"))


def institutions(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    """A row with a BIC and a national code is found by both, unless its `kind` says by which."""
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
            F.when(kind.isin("bank", "both") & F.col("bank_code").isNotNull(), _key(F.lit("bank"), "country", "bank_code")),
            F.when(kind.isin("bic", "both"), F.concat(F.lit(f"bic{SEPARATOR}"), bic)),
            F.when(is_iban, _key(F.lit("iban"), "country")),
        )
    )
    value = F.when(is_iban, _value("begin", "end")).otherwise(_value("name", bic, "country"))
    return _finished(rows, flaws, keys, value)


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
            F.when(F.col("initiating_party").isNotNull(), _key(F.lit("party"), "initiating_party")),
            F.when(F.col("account").isNotNull(), _key(F.lit("account"), account)),
        )
    )
    day = F.to_date(VALID_FROM).cast("string")
    value = _value("processing_entity", "language", "channel", F.array_join(wanted, " "), day)
    return _finished(rows, flaws, keys, value, F.col(VALID_FROM))


def profiles(rows: DataFrame, _: DataFrame | None) -> DataFrame:
    numbers = ("usual_ms", "latest_ms", "late", "usual_events", "most_events")
    flaws = [
        _missing("process_flow"),
        *[(~F.col(name).rlike("^[0-9]{1,15}$"), F.concat(said(name), F.lit("is no whole number"))) for name in numbers],
    ]
    return _finished(rows, flaws, F.array(_key("processing_entity", "process_flow")), _value(*numbers))


SPECS: dict[str, LookupSpec] = {
    each.name: each
    for each in (
        LookupSpec(REASONS, ("code",), ("name", "definition"), reasons),
        LookupSpec(
            SETTINGS,
            ("process_flow_name", "event_name", "transaction_status"),
            ("reason_code", "additional_information", "processing_entity", "suppressed", VALID_FROM),
            settings,
        ),
        LookupSpec(INSTITUTIONS, ("country",), ("name", "bic", "bank_code", "kind", "begin", "end"), institutions),
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
        ),
    )
}
"""In the order in which they are built: the reasons come before the settings, which are compared with them."""
