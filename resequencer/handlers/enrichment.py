"""What a handler knows beside the payment: the settings, and whatever the lookups add."""

from typing import Protocol

from enrichment.shapes import CustomerValue, InstitutionValue
from resequencer.handlers.notification_settings import NotificationSetting, NotificationSettings


class Enrichment(Protocol):
    """All of one version: nothing of it changes while it is used. `version` is None where there are no lookups."""

    @property
    def version(self) -> str | None: ...

    def find_setting(self, entity: str | None, flow: str | None, event: str | None) -> NotificationSetting | None:
        """That of the processing entity, else that of any; None where the event notifies nobody."""
        ...

    def find_words(self, reason_code: str) -> tuple[str, ...]:
        """What a status reason means, in lines as a report may hold them; empty where nobody says."""
        ...

    def find_by_bic(self, bic: str) -> InstitutionValue | None: ...

    def find_by_iban(self, iban: str) -> InstitutionValue | None: ...

    def find_customer(self, kind: str, identity: str) -> CustomerValue | None:
        """`kind` is `party` or `account`."""
        ...

    def find(self, lookup: str, *key: str) -> tuple[str | None, ...] | None:
        """The value in any lookup, a user's own too; None where there is no such key or no such lookup."""
        ...


class SettingsAlone:
    """Without lookups: the table of settings, and nothing else."""

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
