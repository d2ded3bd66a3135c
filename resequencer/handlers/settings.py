"""What handlers are configured with."""

import msgspec

from resequencer.handlers.enrichment import Enrichment, SettingsAlone
from resequencer.handlers.notification_settings import NotificationSettings
from resequencer.handlers.process_object_handler import ProcessObjectHandler
from resequencer.handlers.target_types import find_target_type


class HandlerSettings(msgspec.Struct, frozen=True):
    """`target_type` is `report`, `report-xml`, `produced-report` or `package.module:callable`; the keys name the data it gets.

    All notifications of an envelope together have at most `most_bytes`.
    """

    target_type: str = "report"
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()
    most_bytes: int = 20 * 1024 * 1024


def make_handler(settings: HandlerSettings, known: NotificationSettings | Enrichment) -> ProcessObjectHandler:
    """The handler as configured, with the table of settings alone or with all lookups.

    Raises:
        ConfigurationError: The target type does not exist or cannot be imported.
    """
    target_type = find_target_type(settings.target_type, settings.custom_data_keys, settings.pds_data_keys)
    enrichment = SettingsAlone(known) if isinstance(known, NotificationSettings) else known
    return ProcessObjectHandler(enrichment, target_type, settings.most_bytes)
