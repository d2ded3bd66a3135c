"""The keys of schedules: named ones, and those of a lookup, each once and in order."""

from pathlib import Path

import pytest
from harness.published_lookups import publish, shaped

from notification_service.delivery.schedules.keys import LookupKeys, NamedKeys
from notification_service.delivery.schedules.settings import KeysSettings
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.shapes import NoRelease, ReleaseRefused

REPORT = [None, None, "REPORT", None, None]
CUSTOMERS = {
    ("party", "anna"): REPORT,
    ("party", "bert"): [None, None, "APP", None, None],
    ("party", "cleo"): ["BANK_001", None, "REPORT", None, None],
    ("account", "DE1"): REPORT,
}


def settings(**keys: object) -> KeysSettings:
    given = {"names": (), "lookup": "customers", "kind": "", "where": "{}", **keys}
    return KeysSettings(**given)  # type: ignore[arg-type]


def wanted(keys: LookupKeys, after: bytes = b"") -> list[bytes]:
    return [each.text for each in keys.after(after) if each.text is not None]


@pytest.fixture
def directory(tmp_path: Path) -> LookupsDirectory:
    return LookupsDirectory(tmp_path / "lookups")


def test_named_keys_come_in_order_behind_the_last_one() -> None:
    keys = NamedKeys(["b", "ä", "a"])
    assert [each.text for each in keys.after(b"")] == [b"a", b"b", "ä".encode()]
    assert [each.text for each in keys.after(b"a")] == [b"b", "ä".encode()]


@pytest.mark.parametrize("shards", [1, 3])
def test_keys_of_a_lookup_are_chosen_by_kind_and_columns(directory: LookupsDirectory, shards: int) -> None:
    publish(directory, {"customers": shaped(CUSTOMERS)}, shards)
    keys = LookupKeys(directory, settings(kind="party", where='{"channel": "REPORT"}'))
    version = keys.open(None)
    assert version == directory.get_current().version
    assert wanted(keys) == [b"anna", b"cleo"]
    assert wanted(keys, b"party\x1fanna") == [b"cleo"]
    assert wanted(keys, b"party\x1fcleo") == []
    keys.close()


def test_keys_of_a_lookup_of_ones_own_come_in_the_order_of_their_bytes(
    directory: LookupsDirectory,
) -> None:
    rows = shaped({("desk", str(number)): ["a" if number % 2 else "b"] for number in range(200)})
    publish(directory, {"desks": rows}, 7)
    keys = LookupKeys(directory, settings(lookup="desks", where='{"0": "a"}'))
    keys.open(None)
    found = [each.key for each in keys.after(b"")]
    assert found == sorted(rows)
    assert len(wanted(keys)) == 100
    keys.close()


def test_a_tick_goes_on_with_the_release_that_it_was_begun_with(directory: LookupsDirectory) -> None:
    first = publish(directory, {"customers": shaped(CUSTOMERS)})
    publish(directory, {"customers": shaped({("party", "zoe"): REPORT})}, now=1_790_000_001_000)
    keys = LookupKeys(directory, settings(kind="party"))
    assert keys.open(first.version) == first.version
    assert wanted(keys, b"party\x1fanna") == [b"bert", b"cleo"]
    # The next tick takes the newest.
    assert keys.open(None) != first.version
    assert wanted(keys) == [b"zoe"]
    keys.close()


def test_a_tick_whose_release_is_gone_goes_on_with_the_one_in_use(directory: LookupsDirectory) -> None:
    newest = publish(directory, {"customers": shaped(CUSTOMERS)})
    keys = LookupKeys(directory, settings(kind="party"))
    assert keys.open("20200101T000000000Z") == newest.version
    assert wanted(keys, b"party\x1fanna") == [b"bert", b"cleo"]
    keys.close()


def test_without_a_release_or_the_lookup_a_tick_waits_with_a_reason(directory: LookupsDirectory) -> None:
    keys = LookupKeys(directory, settings())
    with pytest.raises(NoRelease, match="make lookups"):
        keys.open(None)
    publish(directory, {"desks": shaped({("a",): [None]})})
    with pytest.raises(ReleaseRefused, match="no lookup customers, whose keys a schedule needs"):
        keys.open(None)
    keys.close()
