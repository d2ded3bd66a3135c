"""Opens a store of a user's own for a user's own program."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from notification_service.aggregation.atomic_store import AtomicKVStore
from notification_service.aggregation.settings import AggregationSettings
from notification_service.configuration.configuration import load
from notification_service.configuration.schema import path_of
from notification_service.configuration.store_constraints import PAYMENTS
from notification_service.wiring.aggregation.stores import open_commands, open_view, stores_of
from resequencer.errors import ConfigurationError


@contextmanager
def open_atomic_store(configuration: Path, name: str, overrides: Sequence[str] = ()) -> Iterator[AtomicKVStore]:
    """Open `aggregation.stores.NAME` of a configuration file, that of the service, for a `with` block.

    Paths of the configuration are below the working directory, as for the service. Nothing is connected before the first call.

    Raises:
        ConfigurationRefused, ConfigurationError: The configuration is refused, or has no such store.
    """
    read = load(configuration, overrides)
    names = next((each for each in stores_of(read) if each.name == name != PAYMENTS), None)
    if names is None or not read.aggregation.is_enabled:
        known = ", ".join(each for each, _ in read.aggregation.stores) or "none"
        problem = f"has no store {name!r:.80}; it has {known}. Name it, and set aggregation.enabled = true"
        raise ConfigurationError(path_of(AggregationSettings, "stores"), problem)
    with (
        TemporaryDirectory(prefix="store-") as directory,
        closing(AtomicKVStore(open_commands(read, names), lambda: open_view(read, names, Path(directory)))) as store,
    ):
        yield store
