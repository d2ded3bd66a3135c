"""The rules within each receiver of delivery, and between receivers."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from notification_service.aggregation.settings import PAYMENTS, AggregationSettings
from notification_service.configuration.kafka_client_options import CONSUMER_CLIENTS
from notification_service.configuration.region_constraints import FORGOTTEN
from notification_service.configuration.schema import Schema, names_below, path_of
from notification_service.configuration.sections import Notifications, Storages
from notification_service.delivery.settings import (
    DeliverySettings,
    Login,
    OnFailed,
    Policy,
    Receiver,
    Retry,
    Select,
    Steps,
    Suspension,
    Tls,
)
from notification_service.events.pass_through import PASS_THROUGH
from notification_service.events.settings import IPF, EventsSettings
from resequencer.errors import ConfigurationError

_URL, _LIVE, _POLICY = path_of(Receiver, "url"), path_of(Receiver, "is_live"), path_of(Receiver, "policy")
_STEPS, _ON_FAILED = path_of(Receiver, "steps"), path_of(Receiver, "on_failed")
_TOPIC, _GROUP, _INTERVALS = (path_of(Receiver, each) for each in ("topic", "group", "retry_topics_ms"))
_USER, _TOKEN = path_of(Login, "user"), path_of(Login, "token")
_CERTIFICATE, _KEY = path_of(Tls, "certificate"), path_of(Tls, "key")
_PROBE, _MAX_PROBE = path_of(Suspension, "probe_ms"), path_of(Suspension, "max_ms")
_FIRST, _MAX_RETRY = path_of(Retry, "first_ms"), path_of(Retry, "max_ms")
_TRANSPORT, _KEPT = path_of(Notifications, "transport"), path_of(Notifications, "notifications_kept")
_HANDLER = path_of(Notifications, "handler")
_STATUSES, _ENTITIES = path_of(Select, "statuses"), path_of(Select, "entities")
_IN_VAIN = "selects by what only notifications of payments have, but handler = pass-through makes none: empty it"
_NAMESPACE = path_of(Storages, "namespace")
_CONSUMER_GROUP = f"{CONSUMER_CLIENTS}.group.id"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")

Values = Mapping[str, Any]


class _Rule(msgspec.Struct, frozen=True):
    """A receiver breaks it if `is_broken`. `key` is the one that a refusal names."""

    key: str
    is_broken: Callable[[Values], bool]
    problem: str


def _selects_in_vain(found: Values, key: str) -> bool:
    """Whether the receiver of the service's own output selects by a header that records which leave as they came lack."""
    return bool(found[key]) and not found[_TOPIC] and found[_HANDLER] == PASS_THROUGH


def _is_direct(found: Values) -> bool:
    return found[_POLICY] not in (None, Policy.LEDGER)


_RULES = (
    _Rule(_URL, lambda found: found[_URL] is None, "has no value; give the URL of the receiver"),
    _Rule(
        _USER,
        lambda found: found[_USER] and found[_TOKEN],
        "and auth.token are both set; a receiver takes one of them: empty the other",
    ),
    _Rule(
        _KEY,
        lambda found: found[_KEY] and not found[_CERTIFICATE],
        "needs tls.certificate-file, to which the key belongs",
    ),
    _Rule(
        _PROBE,
        lambda found: _is_more(found, _PROBE, _MAX_PROBE),
        "is more than suspension.most: lower it, or raise suspension.most",
    ),
    _Rule(
        _FIRST,
        lambda found: _is_more(found, _FIRST, _MAX_RETRY),
        "is more than retry.most: lower it, or raise retry.most",
    ),
    _Rule(
        _POLICY,
        lambda found: _is_direct(found) and found[_TRANSPORT] == "file",
        "reads a topic, but the notifications are in files: set it to ledger, or transport to kafka",
    ),
    _Rule(
        _URL,
        lambda found: found[_URL] is not None and found[_TRANSPORT] in FORGOTTEN,
        "is set, but the notifications are with a broker of messages, from which they cannot be read twice: set transport to "
        "kafka or file, and further-transports to the other, such as [jms]",
    ),
    _Rule(
        _STEPS,
        lambda found: _is_direct(found) and found[_STEPS] != Steps.DELIVER,
        "announces units, which only the ledger remembers: set policy to ledger, or steps to deliver",
    ),
    _Rule(
        _ON_FAILED,
        lambda found: _is_direct(found) and found[_ON_FAILED] == OnFailed.HOLD,
        "is hold, which only the ledger can: set policy to ledger, or on-failed to skip",
    ),
    _Rule(
        _LIVE,
        lambda found: _is_direct(found) and not found[_LIVE],
        "is false, so that only jobs deliver, and jobs need the ledger: set policy to ledger, or live to true",
    ),
    _Rule(_STATUSES, lambda found: _selects_in_vain(found, _STATUSES), _IN_VAIN),
    _Rule(_ENTITIES, lambda found: _selects_in_vain(found, _ENTITIES), _IN_VAIN),
    _Rule(
        _TOPIC,
        lambda found: bool(found[_TOPIC]) and not _is_direct(found),
        "is set, but the ledger takes the notifications of the service: empty it, or set another policy",
    ),
    _Rule(
        _INTERVALS,
        lambda found: _has_retry_topics(found) and not found[_INTERVALS],
        "is empty, but the policy needs a retry topic: give an interval for each, such as [1m, 10m, 1h]",
    ),
    _Rule(
        _INTERVALS,
        lambda found: bool(found[_INTERVALS]) and not _has_retry_topics(found),
        "is set, but the policy has no retry topics: empty it, or set policy to retry-topics or blocking-then-retry-topics",
    ),
)


def broken_receivers(values: Values, schema: Schema) -> Iterator[ConfigurationError]:
    """Return what is wrong within each receiver, and between them; `schema` has the keys of all of them."""
    section = path_of(DeliverySettings, "receivers")
    of_all = schema.named.get(section, "")
    groups = Counter[str]()
    for name in names_below(section, schema.defaults):
        path = f"{section}.{name}"
        keys = {key: key.removeprefix(f"{of_all}.") for key in schema.keys if key.startswith(f"{of_all}.")}
        of_all_receivers = {each: values.get(each) for each in (_TRANSPORT, _HANDLER)}
        found = {key: values.get(f"{path}.{short}") for key, short in keys.items()} | of_all_receivers
        if not NAME.fullmatch(name):
            yield ConfigurationError(path, "is no name of a receiver; give 1 to 60 small letters, digits and hyphens")
        for rule in _RULES:
            # A key without a valid value has its own refusal.
            if f"{path}.{keys[rule.key]}" in values and rule.is_broken(found):
                yield ConfigurationError(f"{path}.{keys[rule.key]}", rule.problem)
        if found[_LIVE] and values.get(_KEPT) is not None and values.get(_TRANSPORT) == "file":
            yield ConfigurationError(
                f"{path}.live",
                f"is true, and {_KEPT} is {values[_KEPT]}: a full file could be deleted before it is delivered; "
                f"set {_KEPT} to null, or live to false",
            )
        # A receiver that names no group has one of its own name.
        group = found[_GROUP] or (f"{values.get(_NAMESPACE)}-{name}" if _is_direct(found) else "")
        groups.update([group] if group else [])
        if group and (groups[group] > 1 or group == values.get(_CONSUMER_GROUP)):
            yield ConfigurationError(f"{path}.{keys[_GROUP]}", f"is {group}, which others read in: give each receiver its own")


def _is_more(found: Values, first: str, maximum: str) -> bool:
    return found[first] is not None and found[maximum] is not None and found[first] > found[maximum]


def _has_retry_topics(found: Values) -> bool:
    return found[_POLICY] is not None and Policy(found[_POLICY]).has_retry_topics


_STORES, _HAS_STORES = path_of(AggregationSettings, "stores"), path_of(AggregationSettings, "is_enabled")
_FORMAT = path_of(EventsSettings, "format")


def broken_stores(values: Mapping[str, Any], schema: Schema) -> Iterator[ConfigurationError]:
    """Return what is wrong within each store, or that there is none to count; `schema` has the keys of all of them."""
    for name in names_below(_STORES, schema.defaults):
        path = f"{_STORES}.{name}"
        if not NAME.fullmatch(name):
            yield ConfigurationError(path, "is no name of a store; give 1 to 60 small letters, digits and hyphens")
        if name == PAYMENTS:
            yield ConfigurationError(path, "is the name of the store of the payments of messages; choose another one")
        if values.get(f"{path}.apply", "") is None:
            yield ConfigurationError(f"{path}.apply", "has no value; name your callable as package.module:callable")
    if values.get(_HAS_STORES) and values.get(_FORMAT, IPF) != IPF and not names_below(_STORES, schema.defaults):
        problem = "is true, but payments to count come only with events.format = ipf: set false, or name a store of your own"
        yield ConfigurationError(_HAS_STORES, problem)
