"""Flow profiles: how late the events of a flow come, as learned from the archive."""

from functools import lru_cache

from notification_service.lookups.shapes import ANY, PROFILES, ProfileValue, Tables, key_of, reader_of

_KEPT = 4_096

_read = reader_of(ProfileValue)


class ReleasedProfiles:
    """The profiles of one release. Caches its answers, because there are few flows."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.find_lateness_ms = lru_cache(_KEPT)(self._find_lateness_ms)

    def _find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        for each in (entity, ANY) if entity else (ANY,):
            found = self._tables.find(PROFILES, key_of(each, flow))
            if found is not None and (latest_ms := _read(found).latest_ms) is not None:
                return int(latest_ms)
        return None
