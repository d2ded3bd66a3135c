"""What a job is told: where each lookup's rows come from, and what is too bad to be published."""

from pathlib import Path
from typing import Literal

import msgspec

from domain.printable import without_password
from resequencer.strategies.registry import StrategySettings

Format = Literal["csv", "parquet", "jdbc", "iso-codes", "project-codes", "bank-registry", "archive"]

Quarantine = Literal["masked", "plain"]


class SourceSettings(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One source of a lookup. Of several, the later one counts where two have the same key.

    `columns` says how a column is called in the source, where it is called otherwise than here, and with an empty text that it is
    not there. With `csv` and `parquet` the
    path may be a directory or a URL that Hadoop knows; `iso-codes` is one file in JSON. With `jdbc`, `table` may be a query in
    parentheses with a name behind it, and `driver` is the class that speaks with the database. Of fewer good rows than
    `required_good_share` nothing is published.

    Of an `archive`, what came in the last `days` counts; of a flow of which fewer than `least_late` had to wait, no latest
    is learned.
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
        """How it is called where people read of it."""
        if self.format == "jdbc":
            return f"{without_password(self.url.partition('?')[0])} {self.table}"
        return without_password(self.path) or self.format


class Limits(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """`row_drop` is the share of the rows that a lookup may lose from one release to the next, `contradictions` that of the keys
    which may contradict themselves; those are left out. `value_drop` is the share of its values that a column may lose, measured
    by how many of a source's good rows have one.
    """

    row_drop: float = 0.2
    value_drop: float = 0.2
    contradictions: float = 0.0


class LearningSettings(msgspec.Struct, frozen=True):
    """How the service takes the records that it is learned from: by which strategy, of which topic, up to which size."""

    strategy: StrategySettings
    topic: str
    max_value_bytes: int


class JobSettings(msgspec.Struct, frozen=True):
    """`sources` by the lookup's name; one of format `archive` needs `learning`. `specs` says by name where a user's own lookup is
    described, as `package.module:NAME`.

    `spark` are options of the session; `master` as `spark-submit` takes it, which shows the job as `application`. A release is
    also copied to `copy_to`, a URL that Hadoop knows, unless it is empty. A `masked` quarantine shows no digit of a customer,
    nor of a user's own lookup.
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
