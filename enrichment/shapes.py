"""What the lookups hold: the names of their tables, how keys are made, and the values.

A value is a JSON array of texts and nulls in the order of the fields here, as Spark writes it; a change of any of it is a new
`FORMAT` of the manifest. Parts of a key are joined by a character that no id may contain.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

SETTINGS: Final = "notification-settings"
REASONS: Final = "status-reasons"
INSTITUTIONS: Final = "institutions"
CUSTOMERS: Final = "customers"
PROFILES: Final = "completion-profiles"

SEPARATOR: Final = "\x1f"

LONGEST_KEY_BYTES = 511
"""Of LMDB."""

IBAN: Final = "[A-Za-z]{2}[0-9]{2}[A-Za-z0-9]{11,30}"
"""A regular expression. An account that is one is a key in capitals: banks take both cases for the same (ISO 13616)."""

ANY: Final = ""
"""As a processing entity: whichever has no row of its own."""


class SettingValue(msgspec.Struct, frozen=True, array_like=True):
    """Key: processing entity or `ANY`, process flow, event. `suppressed` is `yes` where the event is to notify nobody."""

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
    """Key: `iban` and a country. Where in an IBAN the national bank code begins and ends, counted from 0, in digits."""

    begin: str
    end: str


class CustomerValue(msgspec.Struct, frozen=True, array_like=True):
    """Keys: `party` and an id of the initiating party; `account` and an account, an IBAN in capitals.

    `statuses` are those that the customer wants to hear of, separated by blanks; None is all. `valid_from` is a day.
    """

    entity: str | None = None
    language: str | None = None
    channel: str | None = None
    statuses: str | None = None
    valid_from: str | None = None


class ProfileValue(msgspec.Struct, frozen=True, array_like=True):
    """Key: processing entity or `ANY`, process flow.

    `late` is how often an envelope of this flow had to wait for one that it overtook, and that came. How long it waited then,
    in milliseconds: usually (the median) and of 1 000 the longest but one. Of how many envelopes a unit of this flow has:
    usually (the most frequent), and the most that was seen. What is not known is null; `latest_ms` also where it was learned of
    too few.
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
    """As it is in a key."""
    return identity.upper() if _is_iban(identity) else identity


def reader_of(shape: type[_Value]) -> Callable[[bytes], _Value]:
    return msgspec.json.Decoder(shape).decode


def shown_value(table: str, key: bytes, value: bytes) -> dict[str, Any]:
    """A value by its fields' names, for people."""
    shape = BankCodeValue if table == INSTITUTIONS and key.startswith(key_of("iban", "")) else _SHAPES.get(table)
    if shape is None:
        return {"value": msgspec.json.decode(value)}
    found = msgspec.json.decode(value, type=shape)
    return {name: getattr(found, name) for name in shape.__struct_fields__}
