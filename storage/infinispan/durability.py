"""The durability of an Infinispan cache by its configuration: whether it may lose or change stored data. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

BINARY = "application/octet-stream"
_SETTINGS: Mapping[str, Any] = {
    "encoding": {"media-type": BINARY},
    "persistence": {
        "passivation": False,
        "file-store": {"shared": False, "purge": False, "preload": True, "data": {"sync-writes": True}},
    },
}
CLUSTERED_DEFINITION: Mapping[str, Any] = {"distributed-cache": {"mode": "SYNC", "owners": 2, **_SETTINGS}}
LOCAL_DEFINITION: Mapping[str, Any] = {"local-cache": _SETTINGS}
"""The definition of a new cache: synchronous, on disk, and every write is on the disk before it is answered."""

_HEALED = "the service detects the loss and heals it, and notifications may then repeat, marked possible-duplicate"


class CacheDurability(msgspec.Struct, frozen=True):
    """`owners` is None if it is unknown, or if every server has all entries. `is_seen`: the whole configuration is known."""

    is_clustered: bool
    is_asynchronous: bool
    owners: int | None
    is_on_disk: bool
    is_synced: bool
    is_seen: bool
    objections: tuple[str, ...]
    """Why the cache cannot be used, in sentences with the remedy."""

    def __str__(self) -> str:
        return ", ".join((self._mode, self._place))

    def shortcomings(self) -> Iterator[str]:
        """Yield which data may be lost, and when, in sentences."""
        if self.is_asynchronous:
            yield f"it is asynchronous: if a server fails, the last writes may be lost, and starts are slower; {_HEALED}"
        if not self.is_on_disk:
            servers = "the whole cluster" if self.is_clustered else "the server"
            yield f"it is not on disk: when {servers} restarts, all state is lost; {_HEALED}"
        if not self.is_on_disk and self.owners == 1:
            yield f"it has one owner per entry: if a server fails, its share of the data is lost; {_HEALED}"
        if self.is_on_disk and self.is_seen and not self.is_synced:
            yield f"it does not sync its writes to disk: a power failure loses data that the system had not written; {_HEALED}"
        if not self.is_seen:
            yield "it is unknown whether its entries expire, for the user lacks ADMIN: if they expire, waiting envelopes are lost"

    @property
    def _mode(self) -> str:
        if not self.is_clustered:
            return "on one server"
        mode = "asynchronous" if self.is_asynchronous else "synchronous"
        return mode if self.owners is None else f"{mode}, {self.owners} owners"

    @property
    def _place(self) -> str:
        if not self.is_on_disk:
            return "in memory only"
        return "on disk, synced with every write" if self.is_synced else "on disk"


def durability_of(overview: Mapping[str, Any]) -> CacheDurability:
    """Return the durability from the server's description of the cache. Only an administrator gets its configuration."""
    if (configuration := overview.get("configuration")) is None:
        return _from_overview(overview)
    (named,) = configuration.values()
    (kind, settings), *_ = named.items()
    store = _store(settings.get("persistence") or {})
    return CacheDurability(
        is_clustered=kind != "local-cache",
        is_asynchronous=_upper(settings.get("mode")) == "ASYNC",
        owners=int(settings.get("owners", 2)) if kind == "distributed-cache" else None,
        is_on_disk=store is not None,
        is_synced=store is not None and "write-behind" not in store and _is_true((store.get("data") or {}).get("sync-writes")),
        is_seen=True,
        objections=tuple(_objections(kind, settings, is_on_disk=store is not None)),
    )


def _from_overview(overview: Mapping[str, Any]) -> CacheDurability:
    is_on_disk = _is_true(overview.get("persistent"))
    settings: dict[str, Any] = {"encoding": {"media-type": overview.get("value_storage")}}
    if _is_true(overview.get("bounded")):
        settings["memory"] = {"when-full": "REMOVE"}
    kind = str(overview.get("type"))
    return CacheDurability(
        is_clustered=kind != "local-cache",
        is_asynchronous=_upper(overview.get("mode")).endswith("ASYNC"),
        owners=None,
        is_on_disk=is_on_disk,
        is_synced=False,
        is_seen=False,
        objections=tuple(_objections(kind, settings, is_on_disk=is_on_disk)),
    )


def _store(persistence: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the store that has all entries after a restart, None if there is none."""
    if _is_true(persistence.get("passivation")):
        return None
    stores = (store for name, store in persistence.items() if name.endswith("-store"))
    return next((store for store in stores if not (_is_true(store.get("purge")) or _is_true(store.get("read-only")))), None)


def _objections(kind: str, settings: Mapping[str, Any], *, is_on_disk: bool) -> Iterator[str]:
    if kind not in ("local-cache", "distributed-cache", "replicated-cache"):
        yield f"it is a {kind}, whose servers do not share their entries; make it a distributed-cache"
    expiration = settings.get("expiration") or {}
    for name in ("lifespan", "max-idle"):
        if _is_positive(expiration.get(name)):
            yield f"its entries expire ({name} {expiration[name]}), so waiting envelopes would be lost; remove its {name}"
    memory = settings.get("memory") or {}
    if _upper(memory.get("when-full")) in ("REMOVE", "MANUAL") and not is_on_disk:
        yield "it evicts entries when its memory is full, so waiting envelopes would be lost; remove when-full, or put it on disk"
    encoding = settings.get("encoding") or {}
    media_type = encoding.get("media-type") or (encoding.get("value") or {}).get("media-type") or BINARY
    if media_type.partition(";")[0] != BINARY:
        yield f"it stores its values as {media_type}, which changes them; create it with the media-type {BINARY}"


def _upper(value: object) -> str:
    return str(value or "").upper()


def _is_true(value: object) -> bool:
    return _upper(value) == "TRUE"


def _is_positive(value: object) -> bool:
    """Whether a duration is positive. Durations are -1, a number of milliseconds, or a number with a unit."""
    return value is not None and not str(value).startswith("-") and str(value) != "0"
