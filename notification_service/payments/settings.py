"""The settings of the handlers."""

from typing import cast

import msgspec

from notification_service.payments.enrichment import Enrichment, SettingsAlone
from notification_service.payments.foreign_handler import ForeignHandler
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.port import UsersHandler, VersionedHandler
from notification_service.payments.process_object_handler import ProcessObjectHandler
from notification_service.payments.target_types import find_target_type, import_callable
from resequencer.errors import ConfigurationError, words_of

HANDLER_KEY = "payment-status-notification.handler"


class HandlerSettings(msgspec.Struct, frozen=True):
    """`target_type` is `report`, `report-xml`, `produced-report` or `package.module:callable`. The keys select its payment data.
    `handler` is a user's own handler by `package.module:Class`, None for the handler of process objects.

    `max_bytes` bounds the size of all notifications of an envelope together. With `makes_facts` each status is also a fact.
    """

    target_type: str = "report"
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()
    max_bytes: int = 20 * 1024 * 1024
    handler: str | None = None
    makes_facts: bool = False


def make_handler(settings: HandlerSettings, known: NotificationSettings | Enrichment) -> VersionedHandler:
    """Return the configured handler. `known` is the table of settings alone, or all lookups.

    Raises:
        ConfigurationError: The target type does not exist, or the user's own callable or class cannot be imported or created.
    """
    enrichment = SettingsAlone(known) if isinstance(known, NotificationSettings) else known
    if settings.handler is not None:
        return _make_foreign(settings.handler, settings, enrichment)
    target_type = find_target_type(settings.target_type, settings.custom_data_keys, settings.pds_data_keys)
    return ProcessObjectHandler(enrichment, target_type, settings.max_bytes, makes_facts=settings.makes_facts)


def _make_foreign(name: str, settings: HandlerSettings, enrichment: Enrichment) -> ForeignHandler:
    users_class = import_callable(name, HANDLER_KEY, "a class with the method handle")
    try:
        users = cast(UsersHandler, users_class(settings))
        return ForeignHandler(users, name, enrichment, settings.max_bytes, makes_facts=settings.makes_facts)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Foreign code may raise anything.
        problem = f"{name!r} cannot be used: {words_of(error)}; see docs/extending.md, 'Add a handler'"
        raise ConfigurationError(HANDLER_KEY, problem) from error
