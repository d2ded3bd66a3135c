"""The settings of the handlers."""

from collections.abc import Callable
from typing import Any

import msgspec

from notification_service.events.own_handler import ForeignEventHandler
from notification_service.payments.enrichment import Enrichment, SettingsAlone
from notification_service.payments.foreign_handler import ForeignHandler
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.port import VersionedHandler
from notification_service.payments.process_object_handler import ProcessObjectHandler, WaitingTargetHandler
from notification_service.payments.target_types import CustomTarget, find_target_type
from resequencer.users_code import FindWay, make_adapted, within_the_turn

HANDLER_KEY = "payment-status-notification.handler"


class HandlerSettings(msgspec.Struct, frozen=True):
    """`target_type` is `report`, `report-xml`, `produced-report` or `package.module:callable`. The keys select its payment data.
    `handler` is a user's own handler by `package.module:Class`, None for the handler of process objects; `data_handler` likewise.

    `max_bytes` bounds the size of all notifications of an envelope together. With `makes_facts` each status is also a fact.
    """

    target_type: str = "report"
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()
    max_bytes: int = 20 * 1024 * 1024
    handler: str | None = None
    makes_facts: bool = False
    data_handler: str | None = None


def make_handler(
    settings: HandlerSettings, known: NotificationSettings | Enrichment, find_way: FindWay = within_the_turn
) -> VersionedHandler:
    """Return the configured handler. `known` is the table of settings alone, or all lookups; `find_way` is asked for users' code.

    Raises:
        ConfigurationError: The target type does not exist, or the user's own callable or class cannot be imported or created.
    """
    enrichment = SettingsAlone(known) if isinstance(known, NotificationSettings) else known
    name, max_bytes, makes_facts = settings.handler, settings.max_bytes, settings.makes_facts
    if name is not None:
        return _make_own(
            name,
            lambda users_class: ForeignHandler(
                users_class(settings), name, enrichment, max_bytes, makes_facts=makes_facts, find_way=find_way
            ),
        )
    target_type = find_target_type(settings.target_type, settings.custom_data_keys, settings.pds_data_keys, find_way)
    if isinstance(target_type, CustomTarget) and target_type.waits:
        return WaitingTargetHandler(enrichment, target_type, max_bytes, makes_facts=makes_facts)
    return ProcessObjectHandler(enrichment, target_type, max_bytes, makes_facts=makes_facts)


def make_event_handler(settings: HandlerSettings, find_way: FindWay = within_the_turn) -> VersionedHandler:
    """Return the user's own handler, for events of other formats than IPF's.

    Raises:
        ConfigurationError: The class cannot be imported or created.
    """
    name = settings.handler
    assert name is not None, "the handler of payments handles IPF's envelopes alone"
    return _make_own(name, lambda users_class: ForeignEventHandler(users_class(settings), name, settings.max_bytes, find_way))


def _make_own(name: str, adapt: Callable[[Callable[..., Any]], VersionedHandler]) -> VersionedHandler:
    return make_adapted(name, HANDLER_KEY, "Add a handler", "a class with the method handle", adapt)
