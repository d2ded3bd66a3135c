"""The rules within each store of a user's own."""

from collections.abc import Iterator, Mapping
from typing import Any

from notification_service.aggregation.settings import AggregationSettings
from notification_service.configuration.receiver_constraints import NAME
from notification_service.configuration.schema import Schema, names_below, path_of
from resequencer.errors import ConfigurationError

PAYMENTS = "payments"
"""The name of the store of the payments of messages."""

_STORES = path_of(AggregationSettings, "stores")


def broken_stores(values: Mapping[str, Any], schema: Schema) -> Iterator[ConfigurationError]:
    """Return what is wrong within each store; `schema` has the keys of all of them."""
    for name in names_below(_STORES, schema.defaults):
        path = f"{_STORES}.{name}"
        if not NAME.fullmatch(name):
            yield ConfigurationError(path, "is no name of a store; give 1 to 60 small letters, digits and hyphens")
        if name == PAYMENTS:
            yield ConfigurationError(path, "is the name of the store of the payments of messages; choose another one")
        if values.get(f"{path}.apply", "") is None:
            yield ConfigurationError(f"{path}.apply", "has no value; name your callable as package.module:callable")
