"""What a fixture left in each storage is opened by the code of today, understood, and gone on with.

How a fixture comes to be is told in `make.py`, the history that it was written in is `history.py`.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from compatibility.history import MINUTE_MS, PARTITIONS, UNITS, new_service
from compatibility.keeping import told_of
from compatibility.restoring import Left
from compatibility.told_by_hand import (
    INCOMPLETE_AT_LAST,
    LEAVES,
    OTHERS,
    POSSIBLY_DUPLICATE_AT_LAST,
    RESTING,
    TOLD_AT_LAST,
    WAITING,
    Held,
)
from harness.service_under_test import DEADLINE_MS, P0, P1, Teller
from msgspec.structs import replace

from guardian.pending_output import from_pending
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.record import Partition
from resequencer.storage_port import Pending, Snapshot, StashEntry, Storage, UnitChange
from resequencer.unit import Remainder, Unit, place_of
from resequencer.unit_codec import UnitCodec
from tests.storage.contract import WAITS, expire_all, put


def restored(storage: Storage, partition: Partition) -> dict[str, Unit]:
    strategy = make_strategy(StrategySettings("SEQUENCE"))
    codec = UnitCodec(strategy, EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode, LATEST_OBJECTS)
    return {name: codec.restore(partition, each) for name, each in storage.open(partition).load(UNITS).items()}


def held_in(unit: Unit) -> tuple[str, ...]:
    head = () if unit.retry is None else (unit.retry.entry,)
    stash = sorted(unit.stash, key=place_of)
    return tuple(each.envelope.envelope_id for each in (*head, *stash, *unit.queue))


# What is there


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_partition_is_opened_as_it_was_left(left: Left, reported: dict[str, Any], partition: Partition) -> None:
    found = told_of(left.make().open(partition), (*UNITS, "never seen"))
    header = reported["headers"][left.name][str(partition.number)]
    assert found["header"].pop("token") not in {header["token"], *dict(header["history"])}
    history = [*header["history"], [header.pop("token"), header["commit"]]]
    assert found.pop("header") == header | {"commit": 0, "history": history}
    assert found == reported["partitions"][str(partition.number)]


def test_what_waits_is_what_the_history_came_to(left: Left) -> None:
    storage = left.make()
    found: dict[str, Held] = {}
    for partition in PARTITIONS:
        units = restored(storage, partition)
        waits = dict(storage.open(partition).waiting())
        assert {name for name, unit in units.items() if held_in(unit)} == waits.keys()
        assert all(len(held_in(units[name])) == each.stashed for name, each in waits.items())
        found |= {name: Held(each.kind, each.waits_for, held_in(units[name])) for name, each in waits.items()}
    assert found == WAITING


def test_the_units_are_understood(left: Left) -> None:
    storage = left.make()
    first, second = (restored(storage, partition) for partition in PARTITIONS)
    assert (first.keys(), second.keys()) == (set(UNITS) - OTHERS, OTHERS)
    units = first | second
    assert {name: units[name].state.expected for name in RESTING} == RESTING
    assert all(unit.undecodable == () for unit in units.values())
    assert units["given-up"].state.given_up == ((2, 2), (4, 4), (6, 6), (7, 7))
    assert units["dead-end"].state.dead_ends == (("A", 1),)
    assert [units[name].handled_count for name in ("idle-0", "two-flows", "waits")] == [2, 4, 0]
    data = units["Bäcker|söhne/€ 1"].data
    assert data.mds == (("PAIN_001", '{"of":"Bäcker|söhne/€ 1"}'.encode()),)
    assert data.pds == (("Profile", '{"Nm":"Müller & Söhne"}'.encode()),)
    assert data.custom == (("BusinessData", b'[1,"zwei",null]'),)


def test_an_attempt_under_way_and_what_a_turn_left_over_are_understood(left: Left) -> None:
    units = restored(left.make(), P0)
    forced, plain, away = (units[name].retry for name in ("tries-again-forced", "tries-again", "waits-for-a-server"))
    assert forced is not None
    assert plain is not None
    assert away is not None
    assert (forced.attempts, forced.is_forced, forced.incomplete, forced.released_to) == (1, True, "sequence:1", 13_871)
    assert (plain.attempts, plain.is_forced, plain.incomplete) == (2, False, None)
    assert plain.why == "TransientError: the teller is away"
    assert (away.attempts, away.dependency, away.calls) == (0, "server", 2)
    assert (units["lets-out"].remainder, units["lets-out-queue"].remainder) == (Remainder(lane=""), Remainder(lane=None))
    assert len(units["lets-out-queue"].queue) == 3


def test_what_is_pending_leaves_with_its_marks(left: Left) -> None:
    storage = left.make()
    for partition in PARTITIONS:
        found = []
        for each in map(from_pending, storage.open(partition).pending()):
            headers = {name: value.decode() for name, value in each.headers}
            found.append(
                (each.number, headers.get("notification-id", "dead-letter"), headers.get("incomplete"), "late" in headers)
            )
        assert found == LEAVES[partition]


# Going on


def test_a_successor_changes_it_and_the_next_one_finds_what_it_changed(left: Left) -> None:
    store = left.make().open(P0)
    before = dict(store.load(UNITS))
    removed, *kept = before["waits"].stash
    added = StashEntry(10**6, b"added")
    through = tuple(each.offset for each in before["tries-again"].stash)
    changes = (
        UnitChange("waits", b"new", WAITS, (added,), (removed.offset,)),
        UnitChange("tries-again", b"new", None, (), through, b"new data"),
        UnitChange("idle-0", b"new"),
        UnitChange("never seen", b"new"),
    )
    put(store, *changes, next_offset=30_000, added=(Pending(39, b"new"),), published=38, highest_number=39)
    after = before | {
        "waits": replace(before["waits"], state=b"new", stash=(*kept, added)),
        "tries-again": replace(before["tries-again"], state=b"new", stash=(), data=b"new data"),
        "idle-0": replace(before["idle-0"], state=b"new"),
        "never seen": Snapshot("never seen", b"new", None, ()),
    }
    for reopen in (lambda: store, lambda: left.make().open(P0)):
        each = reopen()
        assert each.load([*UNITS, "never seen"]) == after
        assert list(each.pending()) == [Pending(39, b"new")]
        waiting = dict(each.waiting())
        assert waiting.keys() == WAITING.keys() - OTHERS - {"tries-again"}
        assert waiting["waits"] == WAITS
        assert (each.header.next_offset, each.header.highest_number) == (30_000, 39)


def test_what_rests_is_forgotten_when_its_time_has_come_and_what_waits_is_not(left: Left) -> None:
    store = left.make().open(P0)
    expire_all(store, 3_000)
    known = left.make().open(P0)
    assert known.load(UNITS).keys() == set(UNITS) - OTHERS - {"idle-0", "idle-1", "idle-2", "idle-3"}
    expire_all(known, known.header.caught_up_ms)
    assert left.make().open(P0).load(UNITS).keys() == WAITING.keys() - OTHERS


def test_a_service_on_it_lets_out_what_waited_and_tells_nothing_twice(left: Left, kept: Path, tmp_path: Path) -> None:
    """What was missing comes at last, and what was told comes once more."""
    shutil.copytree(kept / "files", tmp_path, dirs_exist_ok=True)
    shutil.copyfile(kept / "positions" / f"{left.name}.json", tmp_path / "out" / "positions.json")
    service = new_service(tmp_path, lambda _: left.make())
    service.handler = Teller(service.clock)
    service.clock.advance(57_000)
    service.tell("waits", 2, 1)
    service.tell("lets-out-queue", 3)
    service.tell("idle-0", 1, 2, mds=("PAIN_001", "PAIN_001_PAYMENT_TRANSACTION"))
    service.tell("given-up", 1)
    service.tell("other-waits", 1, partition=1)
    service.start()
    try:
        service.run()
        service.run_after(DEADLINE_MS)
        service.run_after(MINUTE_MS)
        assert service.report_units().waiting == 0
    finally:
        service.kill()
    assert {unit: service.sequences(unit) for unit in UNITS} == TOLD_AT_LAST
    assert {each.identity for each in service.notifications if each.is_possible_duplicate} == POSSIBLY_DUPLICATE_AT_LAST
    assert {each.identity: each.incomplete for each in service.notifications if each.incomplete} == INCOMPLETE_AT_LAST
    assert {each.identity for each in service.notifications if each.is_late} == {"late#A#1", "late#A#2", "given-up#A#3"}
    assert len(service.dead) == 5
    numbers = sorted((name, int(number)) for name, number in (each.rsplit("#") for each in service.numbers))
    assert numbers == [(str(partition), number) for partition, last in ((P0, 56), (P1, 10)) for number in range(1, last + 1)]
