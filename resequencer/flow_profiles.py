"""What is known of how late the events of a flow come."""

from functools import lru_cache
from typing import Protocol

from enrichment.port import Tables
from enrichment.shapes import ANY, PROFILES, ProfileValue, key_of, reader_of

_KEPT = 4_096

_read = reader_of(ProfileValue)


class Profiles(Protocol):
    """Of one release of the lookups during a cycle; the same release gives the same answers."""

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        """How long envelopes of this flow have to wait for what they overtook: of 1 000 of them the longest but one.

        What was learned of the processing entity, else of any; None where nothing was, or of too few.
        """
        ...


class ReleasedProfiles:
    """Those of one release. Remembers what it was asked, for there are few flows."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.find_lateness_ms = lru_cache(_KEPT)(self._find_lateness_ms)

    def _find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        for each in (entity, ANY) if entity else (ANY,):
            found = self._tables.find(PROFILES, key_of(each, flow))
            if found is not None and (latest_ms := _read(found).latest_ms) is not None:
                return int(latest_ms)
        return None
