"""The content of the lookups: the names of the tables, the form of the keys, and the values.

A value is a JSON array of texts and nulls in the order of the fields here, as Spark writes it. Any change here needs a new
`FORMAT` of the manifest. The parts of a key are joined by a character that no id may contain.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from resequencer.errors import ResequencerError

SETTINGS: Final = "notification-settings"
REASONS: Final = "status-reasons"
INSTITUTIONS: Final = "institutions"
CUSTOMERS: Final = "customers"
PROFILES: Final = "completion-profiles"

SEPARATOR: Final = "\x1f"

LONGEST_KEY_BYTES = 511
"""The longest key of LMDB, in bytes."""

IBAN: Final = "[A-Za-z]{2}[0-9]{2}[A-Za-z0-9]{11,30}"
"""The regular expression of an IBAN. An IBAN in a key is in capitals, because both cases mean the same (ISO 13616)."""

ANY: Final = ""
"""The processing entity of rows for all entities without a row of their own."""


class SettingValue(msgspec.Struct, frozen=True, array_like=True):
    """Key: processing entity or `ANY`, process flow, event. `suppressed` is `yes` if the event must cause no notification."""

    transaction_status: str
    reason_code: str | None = None
    additional_information: str | None = None
    suppressed: str | None = None


class ReasonValue(msgspec.Struct, frozen=True, array_like=True):
    """Key: the code of a status reason."""

    name: str | None = None
    definition: str | None = None


class InstitutionValue(msgspec.Struct, frozen=True, array_like=True):
    """Keys: `bic` and a BIC of 8 or 11 characters; `bank`, a country, a national bank code."""

    name: str
    bic: str | None
    country: str


class BankCodeValue(msgspec.Struct, frozen=True, array_like=True):
    """Key: `iban` and a country. The place of the national bank code behind the first four characters of an IBAN.

    `begin` (included) and `end` (excluded) are counted from 0, in decimal digits.
    """

    begin: str
    end: str


class CustomerValue(msgspec.Struct, frozen=True, array_like=True):
    """Keys: `party` and an id of the initiating party; `account` and an account, an IBAN in capitals.

    `statuses` are the statuses that the customer wants, separated by blanks; None is all. `valid_from` is a day.
    """

    entity: str | None = None
    language: str | None = None
    channel: str | None = None
    statuses: str | None = None
    valid_from: str | None = None


class ProfileValue(msgspec.Struct, frozen=True, array_like=True):
    """Key: processing entity or `ANY`, process flow.

    `late` counts the envelopes of this flow that waited for one that they had overtaken, and that came. `usual_ms` is the median
    of these waits in milliseconds, `latest_ms` their 99.9th percentile. `usual_events` is the most frequent number of envelopes
    of a unit with this flow, `most_events` the largest. Unknown values are null; `latest_ms` also if too few envelopes waited.
    """

    usual_ms: str | None
    latest_ms: str | None
    late: str | None = None
    usual_events: str | None = None
    most_events: str | None = None


_SHAPES: dict[str, type[msgspec.Struct]] = {
    SETTINGS: SettingValue,
    REASONS: ReasonValue,
    INSTITUTIONS: InstitutionValue,
    CUSTOMERS: CustomerValue,
    PROFILES: ProfileValue,
}

_is_iban = re.compile(IBAN).fullmatch
_Value = TypeVar("_Value", bound=msgspec.Struct)


def key_of(*parts: str) -> bytes:
    return SEPARATOR.join(parts).encode(errors="surrogatepass")


def account_of(identity: str) -> str:
    """Return an account as it is in a key."""
    return identity.upper() if _is_iban(identity) else identity


def reader_of(shape: type[_Value]) -> Callable[[bytes], _Value]:
    return msgspec.json.Decoder(shape).decode


def columns_of(table: str) -> tuple[str, ...]:
    """Return the names of a lookup's columns, without those that only some of its rows have; empty for a user's own lookup."""
    shape = _SHAPES.get(table)
    return () if shape is None else shape.__struct_fields__


def shown_value(table: str, key: bytes, value: bytes) -> dict[str, Any]:
    """Return a value by the names of its fields, to show it."""
    shape = BankCodeValue if table == INSTITUTIONS and key.startswith(key_of("iban", "")) else _SHAPES.get(table)
    if shape is None:
        return {"value": msgspec.json.decode(value)}
    found = msgspec.json.decode(value, type=shape)
    return {name: getattr(found, name) for name in shape.__struct_fields__}


class Tables(Protocol):
    """The tables of one release. `version` is the release's; the same version gives the same answers."""

    @property
    def version(self) -> str: ...

    def find(self, table: str, key: bytes) -> bytes | None:
        """Return the value, None if there is no such key or no such table."""
        ...


class ReleaseRefused(ResequencerError):
    """The release is damaged, incomplete, newer than this service, or being removed. A worker keeps the release that it has."""

    def __init__(self, place: Path, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


class NoRelease(ResequencerError):
    """No release was published in the directory yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: no release of lookups exists; build one with `make lookups` (resequencer lookups build)")


class PublishingRefused(ResequencerError):
    """Another process is publishing or rolling back at the moment, or the directory cannot be written."""

    def __init__(self, directory: Path, problem: str) -> None:
        super().__init__(f"{directory}: {problem}")
