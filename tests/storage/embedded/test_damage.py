"""Flipped bits in the file: the file is refused with its name and the remedy, or all units are found as before.

Values that are in no index are not checked.
"""

from pathlib import Path
from random import Random

import pytest

from resequencer.storage_port import StashEntry, StorageRefused, UnitChange
from storage.embedded import database as integrity
from tests.storage.contract import PARTITION, WAITS, put
from tests.storage.embedded.storages import EmbeddedHarness

WAITING = [f"waiting-{number}" for number in range(60)]
IDLE = [f"idle-{number}" for number in range(60)]


@pytest.fixture
def whole(embedded: EmbeddedHarness) -> bytes:
    storage = embedded.make()
    store = storage.open(PARTITION)
    waiting = (UnitChange(unit, b"s" * 90, WAITS, (StashEntry(at, b"e" * 700),)) for at, unit in enumerate(WAITING))
    put(store, *waiting, *(UnitChange(unit, b"s" * 90, data=b"d" * 900) for unit in IDLE))
    storage.close()
    return embedded.file.read_bytes()


def flip(file: Path, content: bytes, at: int, bit: int) -> None:
    file.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])


def found(embedded: EmbeddedHarness) -> tuple[set[str], set[str]] | str:
    """Return the names of all units and of the waiting ones; or why the file was refused."""
    storage = embedded.make()
    try:
        store = storage.open(PARTITION)
        return set(store.load(WAITING + IDLE)), {unit for unit, _ in store.waiting()}
    except StorageRefused as refused:
        return f"{refused.what}: {refused.problem}"
    finally:
        storage.close()


def check(embedded: EmbeddedHarness, content: bytes, places: list[int], random: Random) -> int:
    """Flip a bit at each of these places; return how often the file was refused."""
    refusals = 0
    for at in places:
        flip(embedded.file, content, at, random.randrange(8))
        there = found(embedded)
        if isinstance(there, str):
            assert there.startswith(f"{embedded.file}: "), f"at byte {at}"
            assert "restore it" in there or "set another path" in there, there
            refusals += 1
        else:
            assert there == ({*WAITING, *IDLE}, {*WAITING}), f"at byte {at}"
    return refusals


def test_a_bit_that_flips_in_the_header_empties_nothing(embedded: EmbeddedHarness, whole: bytes) -> None:
    assert check(embedded, whole, list(range(100)), Random(1)) > 30


@pytest.mark.slow
def test_a_bit_that_flips_anywhere_takes_no_unit_away(embedded: EmbeddedHarness, whole: bytes) -> None:
    random = Random(2)
    used = [at for at, byte in enumerate(whole) if byte and chr(byte) not in "sed"]
    assert check(embedded, whole, random.sample(used, 500), random) > 100


def test_an_index_that_does_not_fit_is_refused_before_anything_is_looked_for_in_it(
    embedded: EmbeddedHarness, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = whole.rindex(b"waiting-7")
    flip(embedded.file, whole, at, 0)
    assert "it is damaged: " in str(found(embedded))
    monkeypatch.setattr(integrity, "LARGEST_BYTES", 0)
    assert "it is damaged: " not in str(found(embedded)), "a file that is too large is not asked"
