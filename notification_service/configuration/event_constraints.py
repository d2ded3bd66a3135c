"""What formats of events, strategies and handlers need of each other: docs/contract.md, section 19."""

from collections.abc import Callable, Iterator

from notification_service.aggregation.settings import AggregationSettings
from notification_service.bridge.settings import BridgeSettings
from notification_service.configuration.schema import Constraint, Values, path_of
from notification_service.configuration.sections import Ingress, Notifications, Resequencers
from notification_service.events.mapped import DIGEST, KEY, POSITION, Mapping
from notification_service.events.own_data import LATEST_OBJECTS_NAME, NO_DATA_NAME
from notification_service.events.pass_through import PASS_THROUGH, PAYMENTS
from notification_service.events.settings import IPF, MAPPED, EventsSettings
from resequencer.settings import LEARNED
from resequencer.strategies.window import OrderBy

_FORMAT = path_of(EventsSettings, "format")
_UNIT, _ID, _PREVIOUS = path_of(Mapping, "unit"), path_of(Mapping, "id"), path_of(Mapping, "previous")
_SEQUENCE = path_of(Mapping, "sequence")
_HANDLER, _DATA_HANDLER = path_of(Notifications, "handler"), path_of(Notifications, "data_handler")
_STRATEGY, _ORDER_BY = path_of(Resequencers, "strategy"), path_of(Resequencers, "order_by")
_PARTS = path_of(Resequencers, "required_parts")
_STASH = path_of(Resequencers, "stash_timeout_ms")
_HAS_FACTS, _STORES = path_of(AggregationSettings, "is_enabled"), path_of(AggregationSettings, "stores")
_SOURCE = path_of(Ingress, "transport")
_HAS_BRIDGE = path_of(BridgeSettings, "is_enabled")


def _needs_ipf(path: str, needs: Callable[[str], bool], problem: str) -> Constraint:
    return Constraint((path, _FORMAT), lambda values: values[_FORMAT] == IPF or not needs(values[path]), problem)


def _is_mapped(path: str, key: str, needs: Callable[[Values], bool], what: str) -> Constraint:
    return Constraint(
        (path, _FORMAT, _STRATEGY, _ORDER_BY, key),
        lambda values: values[_FORMAT] != MAPPED or values[key] is not None or not needs(values),
        f"{what}: give {key}",
    )


def _counts_payments(values: Values) -> bool:
    """Whether facts are made of payments. Without payments only stores of users' own are of use."""
    has_payments = values[_FORMAT] == IPF and values[_HANDLER] != PASS_THROUGH
    return has_payments or any(path.startswith(f"{_STORES}.") for path in values)


def _orders_by_number(values: Values) -> bool:
    by_number = bool(values[_STRATEGY] == "WINDOW" and values[_ORDER_BY] == OrderBy.SEQUENCE)
    return by_number or values[_STRATEGY] in ("SEQUENCE", "STRICT_SEQUENCE")


def _orders_by_time(values: Values) -> bool:
    return bool(values[_STRATEGY] == "WINDOW" and values[_ORDER_BY] == OrderBy.TIME)


def _orders_by_links(values: Values) -> bool:
    return bool(values[_STRATEGY] == "PREVIOUS")


EVENT_CONSTRAINTS = (
    _needs_ipf(
        _HANDLER,
        lambda handler: handler == PAYMENTS,
        f"is {PAYMENTS} (the default), which handles only events.format = ipf; set {PASS_THROUGH} to send records on as they "
        "came, or a class of your own (package.module:Class)",
    ),
    _needs_ipf(
        _DATA_HANDLER,
        lambda name: name == LATEST_OBJECTS_NAME,
        f"is {LATEST_OBJECTS_NAME}, which keeps those of payments, which only events.format = ipf brings; set {NO_DATA_NAME}, or "
        "a class of your own (package.module:Class)",
    ),
    Constraint(
        (_DATA_HANDLER, _HANDLER),
        lambda values: values[_DATA_HANDLER] != NO_DATA_NAME or values[_HANDLER] != PAYMENTS,
        f"is none, but handler = {PAYMENTS} reports what was kept: set latest-objects, or a data handler of your own",
    ),
    _needs_ipf(
        _STRATEGY,
        lambda strategy: strategy.startswith("FULL_PAIN001"),
        "waits for the parts of payments, which only events.format = ipf brings; "
        "choose SEQUENCE, STRICT_SEQUENCE, COMPLETE, PREVIOUS or WINDOW",
    ),
    _needs_ipf(
        _STASH,
        lambda timeout: timeout == LEARNED,
        "is learned, from the archived envelopes of payments, which only events.format = ipf brings; set a duration, or null",
    ),
    Constraint(
        (_HAS_FACTS, _FORMAT, _HANDLER),
        lambda values: not values[_HAS_FACTS] or _counts_payments(values),
        f"is true, but only {_FORMAT} = ipf brings payments to count, and {_HANDLER} = {PASS_THROUGH} reports none: set it to "
        f"false, or configure a store of your own in {_STORES}",
    ),
    _is_mapped(_STRATEGY, _SEQUENCE, _orders_by_number, "orders by numbers, and none is mapped"),
    _is_mapped(_STRATEGY, path_of(Mapping, "time"), _orders_by_time, "orders by times, and none is mapped"),
    _is_mapped(
        _STRATEGY, path_of(Mapping, "type"), lambda values: values[_STRATEGY] == "COMPLETE", "waits for parts, and none is mapped"
    ),
    _is_mapped(_STRATEGY, _PREVIOUS, _orders_by_links, "orders by the event before each, and none is mapped"),
    Constraint(
        (_ID, _STRATEGY, _FORMAT),
        lambda values: values[_FORMAT] != MAPPED or not _orders_by_links(values) or values[_ID] not in (None, POSITION, DIGEST),
        "gives no id that another event could name, as strategy = PREVIOUS needs: give the place of the id",
    ),
    Constraint(
        (_PREVIOUS, _ID, _STRATEGY, _FORMAT),
        lambda values: (
            values[_FORMAT] != MAPPED
            or not _orders_by_links(values)
            or values[_PREVIOUS] is None
            or values[_PREVIOUS] != values[_ID]
        ),
        f"is the place of {_ID} too, so each event would name itself as the one before it: give another place",
    ),
    Constraint(
        (_STRATEGY, _FORMAT),
        lambda values: values[_FORMAT] != IPF or not _orders_by_links(values),
        "is PREVIOUS, and data envelopes do not name the one before them: choose another one",
    ),
    Constraint(
        (_ORDER_BY, _STRATEGY, _FORMAT),
        lambda values: values[_FORMAT] != IPF or not _orders_by_time(values),
        "is time, which data envelopes do not bring: set order-by = sequence",
    ),
    Constraint(
        (_PARTS, _STRATEGY),
        lambda values: values[_STRATEGY] != "COMPLETE" or bool(values[_PARTS]),
        "is empty, but strategy = COMPLETE waits for the parts that this key names: give at least one",
    ),
    Constraint(
        (_PARTS, _STRATEGY),
        lambda values: values[_STRATEGY] != "COMPLETE" or not any("," in part for part in values[_PARTS]),
        "has a name with a comma, which separates the names of missing parts in the mark incomplete: give names without commas",
    ),
    Constraint(
        (_ID, _SEQUENCE, _FORMAT),
        lambda values: values[_FORMAT] != MAPPED or values[_ID] is not None or values[_SEQUENCE] is not None,
        "is null, and no sequence is mapped, so nothing identifies an event: give its place, or position (no record is a "
        "duplicate) or digest (equal contents are one event)",
    ),
)


def doubtful_events(values: Values) -> Iterator[str]:
    """Return what is not certain of units that a mapping finds elsewhere than in the key. The bridge keys by the mapping."""
    is_placed_by_key = values[_SOURCE] in ("kafka", "file") and not values[_HAS_BRIDGE]
    if values[_FORMAT] == MAPPED and values[_UNIT] != KEY and is_placed_by_key:
        yield (
            f"{_UNIT}: is {values[_UNIT]}: records have their partition by their key, and only events of one partition are in "
            "order. Let producers use the unit as the key; `status` counts records whose key is another one than before"
        )
