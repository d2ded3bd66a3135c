"""What handlers are configured with."""

import msgspec

from resequencer.handlers.notification_settings import NotificationSettings
from resequencer.handlers.process_object_handler import ProcessObjectHandler
from resequencer.handlers.target_types import find_target_type


class HandlerSettings(msgspec.Struct, frozen=True):
    """`target_type` is `report`, `report-xml`, `produced-report` or `package.module:callable`; the keys name the data it gets."""

    target_type: str = "report"
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()


def make_handler(settings: HandlerSettings, notification_settings: NotificationSettings) -> ProcessObjectHandler:
    """The handler as configured.

    Raises:
        ConfigurationError: The target type does not exist or cannot be imported.
    """
    target_type = find_target_type(settings.target_type, settings.custom_data_keys, settings.pds_data_keys)
    return ProcessObjectHandler(notification_settings, target_type)
