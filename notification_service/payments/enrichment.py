"""The data that a handler uses beside the payment: the notification settings and the other lookups."""

from typing import Protocol

from notification_service.lookups.shapes import CustomerValue, InstitutionValue
from notification_service.payments.notification_settings import NotificationSetting, NotificationSettings


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
