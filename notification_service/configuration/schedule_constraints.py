"""The rules within each schedule of delivery."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from notification_service.configuration.receiver_constraints import NAME
from notification_service.configuration.schema import Schema, names_below, path_of
from notification_service.configuration.sections import Notifications
from notification_service.delivery.schedules.core import Ticks
from notification_service.delivery.schedules.settings import KeysSettings, Schedule, Waiting
from notification_service.delivery.settings import DeliverySettings, Policy
from notification_service.lookups.shapes import columns_of
from resequencer.errors import ConfigurationError

_SCHEDULES, _RECEIVERS = path_of(DeliverySettings, "schedules"), path_of(DeliverySettings, "receivers")
_DEFAULTS = path_of(DeliverySettings, "schedule_defaults")
_CRON, _ZONE, _TOPIC, _RECEIVER, _WAITING = (
    path_of(Schedule, each).removeprefix(f"{_DEFAULTS}.") for each in ("cron", "time_zone", "topic", "receiver", "waiting")
)
_NAMES, _LOOKUP, _KIND, _WHERE = (
    path_of(KeysSettings, each).removeprefix(f"{_DEFAULTS}.") for each in ("names", "lookup", "kind", "where")
)
_TRANSPORT = path_of(Notifications, "transport")

Values = Mapping[str, Any]


def broken_schedules(values: Values, schema: Schema) -> Iterator[ConfigurationError]:
    """Return what is wrong within each schedule; `schema` has the keys of all of them.

    A key without a valid value has its own refusal.
    """
    for name in names_below(_SCHEDULES, schema.defaults):
        path = f"{_SCHEDULES}.{name}"
        if not NAME.fullmatch(name):
            yield ConfigurationError(path, "is no name of a schedule; give 1 to 60 small letters, digits and hyphens")
        found = {key.removeprefix(f"{path}."): value for key, value in values.items() if key.startswith(f"{path}.")}
        for problems in (_of_ticks, _of_keys):
            yield from (ConfigurationError(f"{path}.{key}", problem) for key, problem in problems(found))
        yield from (ConfigurationError(f"{path}.{key}", problem) for key, problem in _of_target(found, values))


def _of_ticks(found: Values) -> Iterator[tuple[str, str]]:
    if _CRON not in found or _ZONE not in found:
        return
    if not found[_CRON].strip():
        yield _CRON, 'has no value; give the ticks as in crontab(5), such as "0 18 * * MON-FRI"'
        return
    try:
        Ticks("0 0 * * *", found[_ZONE])
    except ValueError:
        yield _ZONE, f"is {found[_ZONE]}, which is no time zone of the IANA database, such as Europe/Berlin"
        return
    try:
        Ticks(found[_CRON], found[_ZONE])
    except ValueError as error:
        yield _CRON, f'is "{found[_CRON]}", and {error}; give five fields as in crontab(5), such as "0 18 * * MON-FRI"'


def _of_keys(found: Values) -> Iterator[tuple[str, str]]:
    if any(key not in found for key in (_NAMES, _LOOKUP, _KIND, _WHERE)):
        return
    if not found[_NAMES] and not found[_LOOKUP]:
        yield _NAMES, "is empty, and so is keys.lookup: name the keys, or the lookup whose keys they are"
    if found[_NAMES] and found[_LOOKUP]:
        yield _NAMES, "and keys.lookup are both set; a schedule takes one of them: empty the other"
    where = json.loads(found[_WHERE])
    if found[_NAMES] and (found[_KIND] or where):
        key = _KIND if found[_KIND] else _WHERE
        yield key, "chooses keys of a lookup, but keys.names has the keys: empty one of them"
    if any(not isinstance(value, str) for value in where.values()):
        yield (
            _WHERE,
            'has a value that is no text; columns are texts: put it in quotes, such as { valid_from = "2026-03-28" }',
        )
    columns = columns_of(found[_LOOKUP])
    unknown = sorted(set(where) - set(columns)) if columns else []
    if unknown:
        yield _WHERE, f"names {unknown[0]}, which is no column of {found[_LOOKUP]}; its columns are {', '.join(columns)}"


def _of_target(found: Values, values: Values) -> Iterator[tuple[str, str]]:
    if any(key not in found for key in (_TOPIC, _RECEIVER)):
        return
    topic, receiver = found[_TOPIC], found[_RECEIVER]
    if bool(topic) == bool(receiver):
        both = "and receiver are both set; requests go to one of them: empty the other"
        yield _TOPIC, both if topic else "is empty, and so is receiver: name where the requests go"
    if topic and values.get(_TRANSPORT) not in (None, "kafka"):
        yield _TOPIC, "is set, which needs transport = kafka: set receiver instead, or the transport"
    if topic and found.get(_WAITING) == Waiting.NEWEST:
        yield (
            _WAITING,
            "is newest, which needs receiver: a record of a topic cannot be taken back; set it to all, or name a receiver",
        )
    policy = values.get(f"{_RECEIVERS}.{receiver}.policy")
    if receiver and f"{_RECEIVERS}.{receiver}.url" not in values:
        yield _RECEIVER, f"is {receiver}, which is no receiver: add it to receivers, or name another one"
    elif receiver and policy not in (None, Policy.LEDGER):
        yield _RECEIVER, f"is {receiver}, whose policy is {policy}: name the topic that it reads in topic instead"
