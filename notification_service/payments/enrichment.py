"""The data that a handler uses beside the payment: the notification settings and the other lookups."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import msgspec

from notification_service.lookups.shapes import (
    ANY,
    CUSTOMERS,
    INSTITUTIONS,
    LONGEST_KEY_BYTES,
    REASONS,
    SETTINGS,
    BankCodeValue,
    CustomerValue,
    InstitutionValue,
    ReasonValue,
    SettingValue,
    Tables,
    account_of,
    key_of,
    reader_of,
)
from notification_service.payments.notification_settings import NotificationSetting, NotificationSettings, split_information


class Enrichment(Protocol):
    """Data of one version, which never changes. `version` is None without lookups."""

    @property
    def version(self) -> str | None: ...

    def find_setting(self, entity: str | None, flow: str | None, event: str | None) -> NotificationSetting | None:
        """Return the setting of the processing entity, else the one for any entity. None if the event causes no notification."""
        ...

    def find_words(self, reason_code: str) -> tuple[str, ...]:
        """Return the meaning of a status reason, in lines of a report's length; empty if it is unknown."""
        ...

    def find_by_bic(self, bic: str) -> InstitutionValue | None: ...

    def find_by_iban(self, iban: str) -> InstitutionValue | None: ...

    def find_customer(self, kind: str, identity: str) -> CustomerValue | None:
        """Return the customer with this identity, or None. `kind` is `party` or `account`."""
        ...

    def find(self, lookup: str, *key: str) -> tuple[str | None, ...] | None:
        """Return the value in any lookup, also in a user's own. None if there is no such key or no such lookup."""
        ...


class SettingsAlone:
    """The notification settings only, for a service without lookups."""

    version: str | None = None

    def __init__(self, settings: NotificationSettings) -> None:
        self._settings = settings

    def find_setting(self, entity: str | None, flow: str | None, event: str | None) -> NotificationSetting | None:
        del entity
        return self._settings.find(flow, event)

    def find_words(self, reason_code: str) -> tuple[str, ...]:
        del reason_code
        return ()

    def find_by_bic(self, bic: str) -> InstitutionValue | None:
        del bic
        return None

    def find_by_iban(self, iban: str) -> InstitutionValue | None:
        del iban
        return None

    def find_customer(self, kind: str, identity: str) -> CustomerValue | None:
        del kind, identity
        return None

    def find(self, lookup: str, *key: str) -> tuple[str | None, ...] | None:
        del lookup, key
        return None


PARTY = "party"
ACCOUNT = "account"


class _Other(msgspec.Struct, gc=False):
    Id: str | None = None


class _Identities(msgspec.Struct, gc=False):
    AnyBIC: str | None = None
    LEI: str | None = None
    Othr: list[_Other] = []


class _Choice(msgspec.Struct, gc=False):
    OrgId: _Identities | None = None
    PrvtId: _Identities | None = None


class _Party(msgspec.Struct, gc=False):
    Id: _Choice | None = None


class _AccountChoice(msgspec.Struct, gc=False):
    IBAN: str | None = None
    Othr: _Other | None = None


class _Account(msgspec.Struct, gc=False):
    Id: _AccountChoice | None = None


_read_party = msgspec.json.Decoder(_Party).decode
_read_account = msgspec.json.Decoder(_Account).decode


def find_customer(party: msgspec.Raw | None, account: msgspec.Raw | None, enrichment: Enrichment) -> CustomerValue | None:
    """Return the first customer that the lookups have, or None. Both arguments are valid under the schema."""
    for kind, identity in _identities(party, account):
        found = enrichment.find_customer(kind, identity)
        if found is not None:
            return found
    return None


def _identities(party: msgspec.Raw | None, account: msgspec.Raw | None) -> Iterator[tuple[str, str]]:
    if party is not None and (choice := _read_party(party).Id) is not None:
        for identities in (choice.OrgId, choice.PrvtId):
            if identities is not None:
                for identity in (identities.AnyBIC, identities.LEI, *(each.Id for each in identities.Othr)):
                    if identity is not None:
                        yield PARTY, identity
    if account is not None and (its := _read_account(account).Id) is not None:
        identity = its.IBAN or (None if its.Othr is None else its.Othr.Id)
        if identity is not None:
            yield ACCOUNT, account_of(identity)


_KEPT_SETTINGS = 4_096
_KEPT_REASONS = 1_024
_SHORTEST_BIC = 8
_HEAD_OFFICE = "XXX"
_CHECKED_LETTERS = 4
"""An IBAN begins with the country (2 letters) and 2 check digits."""

_read_setting = reader_of(SettingValue)
_read_reason = reader_of(ReasonValue)
_read_institution = reader_of(InstitutionValue)
_read_bank_code = reader_of(BankCodeValue)
_read_customer = reader_of(CustomerValue)
_read_value = msgspec.json.Decoder(tuple[str | None, ...]).decode


class Lookups:
    """Caches settings and reasons, because they are few. Customers and institutions are read each time."""

    def __init__(self, tables: Tables) -> None:
        self.version: str | None = tables.version
        self._tables = tables
        self._find_kept_setting = lru_cache(_KEPT_SETTINGS)(self._find_setting)
        self.find_words = lru_cache(_KEPT_REASONS)(self._find_words)

    def find_setting(self, entity: str | None, flow: str | None, event: str | None) -> NotificationSetting | None:
        """Find a setting. Names that are longer than any key are neither looked up nor cached."""
        if flow is None or event is None or len(flow) + len(event) > LONGEST_KEY_BYTES:
            return None
        return self._find_kept_setting(entity, flow, event)

    def _find_setting(self, entity: str | None, flow: str, event: str) -> NotificationSetting | None:
        found = self._tables.find(SETTINGS, key_of(entity, flow, event)) if entity else None
        if found is None:
            found = self._tables.find(SETTINGS, key_of(ANY, flow, event))
        return None if found is None else self._setting(flow, event, _read_setting(found))

    def _setting(self, flow: str, event: str, value: SettingValue) -> NotificationSetting:
        return NotificationSetting(
            flow,
            event,
            value.transaction_status,
            value.reason_code,
            split_information(value.additional_information or ""),
            () if value.reason_code is None else self.find_words(value.reason_code),
            value.suppressed is not None,
        )

    def _find_words(self, reason_code: str) -> tuple[str, ...]:
        found = self._tables.find(REASONS, key_of(reason_code))
        if found is None:
            return ()
        reason = _read_reason(found)
        return split_information(": ".join([each for each in (reason.name, reason.definition) if each]))

    def find_by_bic(self, bic: str) -> InstitutionValue | None:
        """Find an institution by its BIC. For an unknown branch, return the head office."""
        shorter = (bic, bic[:_SHORTEST_BIC], bic[:_SHORTEST_BIC] + _HEAD_OFFICE)
        found = next((found for each in shorter if (found := self._tables.find(INSTITUTIONS, key_of("bic", each)))), None)
        return None if found is None else _read_institution(found)

    def find_by_iban(self, iban: str) -> InstitutionValue | None:
        country = iban[:2]
        where = self._tables.find(INSTITUTIONS, key_of("iban", country))
        if where is None:
            return None
        code = _read_bank_code(where)
        bank = iban[_CHECKED_LETTERS:][int(code.begin) : int(code.end)]
        found = self._tables.find(INSTITUTIONS, key_of("bank", country, bank))
        return None if found is None else _read_institution(found)

    def find_customer(self, kind: str, identity: str) -> CustomerValue | None:
        found = self._tables.find(CUSTOMERS, key_of(kind, identity))
        return None if found is None else _read_customer(found)

    def find(self, lookup: str, *key: str) -> tuple[str | None, ...] | None:
        found = self._tables.find(lookup, key_of(*key))
        return None if found is None else _read_value(found)
