"""Profiles: what a release knows about how late the events of a flow come."""

from collections.abc import Mapping

import msgspec

from notification_service.lookups.flow_profiles import ReleasedProfiles
from notification_service.lookups.shapes import ANY, PROFILES, key_of


class Tables:
    """Tables with these profiles; they count the look-ups. None stands for a profile of too few envelopes."""

    version = "20261121T000000000Z"

    def __init__(self, rows: Mapping[tuple[str, str], int | None]) -> None:
        self.asked = 0
        self._rows = {key_of(*key): msgspec.json.encode(["1", late and str(late), "9", "4", "7"]) for key, late in rows.items()}

    def find(self, table: str, key: bytes) -> bytes | None:
        self.asked += 1
        return self._rows.get(key) if table == PROFILES else None


def test_the_profile_of_the_entity_counts_before_that_of_any():
    profiles = ReleasedProfiles(Tables({("BANK_001", "A"): 5, (ANY, "A"): 9}))
    assert profiles.find_lateness_ms("BANK_001", "A") == 5
    assert profiles.find_lateness_ms("BANK_002", "A") == 9
    assert profiles.find_lateness_ms(None, "A") == 9


def test_a_flow_that_no_profile_is_of_has_none():
    assert ReleasedProfiles(Tables({("BANK_001", "A"): 5})).find_lateness_ms("BANK_002", "A") is None
    assert ReleasedProfiles(Tables({})).find_lateness_ms(None, "A") is None


def test_an_entity_of_which_too_few_were_late_has_the_profile_of_any():
    profiles = ReleasedProfiles(Tables({("BANK_001", "A"): None, (ANY, "A"): 9, (ANY, "B"): None}))
    assert profiles.find_lateness_ms("BANK_001", "A") == 9
    assert profiles.find_lateness_ms(None, "B") is None


def test_the_release_is_asked_once_for_a_flow():
    tables = Tables({(ANY, "A"): 9})
    profiles = ReleasedProfiles(tables)
    assert {profiles.find_lateness_ms(None, "A") for _ in range(1_000)} == {9}
    assert tables.asked == 1
