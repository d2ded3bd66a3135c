"""The settings of the lookups job: the sources of each lookup, and the limits for publishing."""

from pathlib import Path
from typing import Literal

import msgspec

from notification_service.payments.strategies import StrategySettings
from resequencer.printable import without_secrets

Format = Literal["csv", "parquet", "jdbc", "iso-codes", "project-codes", "bank-registry", "archive"]

Quarantine = Literal["masked", "plain"]


class SourceSettings(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One source of a lookup. If several sources have the same key, the later source counts.

    `columns` maps a column's name here to its name in the source; an empty text means that the source does not have the column.
    With `csv` and `parquet` the path may be a directory or a URL that Hadoop supports; `iso-codes` is one JSON file. With `jdbc`,
    `table` may be a query in parentheses followed by a name, and `driver` is the JDBC driver's class. Nothing is published if the
    share of good rows is below `required_good_share`.

    An `archive` gives the records of the last `days`. A flow in which fewer than `least_late` envelopes had to wait gets no
    `latest_ms`.
    """

    format: Format
    path: str = ""
    delimiter: str = ","
    columns: dict[str, str] = {}
    required_good_share: float = 1.0
    url: str = ""
    table: str = ""
    user: str = ""
    password: str = ""
    driver: str = ""
    days: int = 30
    least_late: int = 1_000

    @property
    def place(self) -> str:
        """The name of the source in messages, without passwords."""
        if self.format == "jdbc":
            return f"{without_secrets(self.url.partition('?')[0])} {self.table}"
        return without_secrets(self.path) or self.format


class Limits(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Limits for a release compared with the one before.

    `row_drop` is the share of its rows that a lookup may lose. `value_drop` is the share of its values that a column may lose,
    measured among a source's good rows. `contradictions` is the share of keys in a release that may be contradictory; such keys
    are left out.
    """

    row_drop: float = 0.2
    value_drop: float = 0.2
    contradictions: float = 0.0


class LearningSettings(msgspec.Struct, frozen=True):
    """The service's settings that the records to learn from depend on: strategy, topic, and the largest value."""

    strategy: StrategySettings
    topic: str
    max_value_bytes: int


class JobSettings(msgspec.Struct, frozen=True):
    """`sources` are by the lookup's name; a source of format `archive` needs `learning`. `specs` holds the place of each of a
    user's own lookups by name, as `package.module:NAME`.

    `spark` holds options of the session, `master` is that of `spark-submit`, and `application` the name that Spark shows. A
    release is also copied to `copy_to`, a URL that Hadoop supports, unless it is empty. A `masked` quarantine shows no digit of a
    customer, or of a user's own lookup.
    """

    directory: Path
    keep: int
    sources: dict[str, tuple[SourceSettings, ...]]
    limits: Limits = Limits()
    master: str = "local[*]"
    spark: dict[str, str] = {}
    learning: LearningSettings | None = None
    copy_to: str = ""
    quarantine: Quarantine = "masked"
    application: str = "resequencer"
    specs: dict[str, str] = {}
