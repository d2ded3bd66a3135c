"""The envelopes that may have killed workers, as the run directory keeps them."""

import os

import pytest

from notification_service.supervision import suspects as module
from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.suspects import EXITS_OF_ONE, Suspects
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition

HELD = InFlightEnvelope(1, Origin(Partition("T", 0), 17), "uow-1", CallKind.HANDLING, "00ff")


def held(offset: int = 17, identity: str = "00ff") -> InFlightEnvelope:
    return InFlightEnvelope(9, Origin(Partition("T", 0), offset), "uow-1", CallKind.HANDLING, identity)


@pytest.fixture
def suspects(tmp_path):
    return Suspects(tmp_path)


def test_no_envelope_is_suspected_before_the_first_death(suspects, tmp_path):
    assert suspects.find_all() == {}
    assert list(tmp_path.iterdir()) == []


def test_exits_of_the_same_envelope_add_up_and_the_third_condemns_it(suspects, tmp_path):
    counted = [suspects.count(held(), f"ended with {code}") for code in range(EXITS_OF_ONE)]
    assert [(each.exits, each.is_condemned) for each in counted] == [(1, False), (2, False), (3, True)]
    assert Suspects(tmp_path).find_all() == {held().origin: counted[-1]}
    assert counted[-1].last_exit == "ended with 2"


def test_each_envelope_has_its_own_count(suspects):
    suspects.count(held(17), "died")
    suspects.count(held(18), "died")
    assert {origin.offset: each.exits for origin, each in suspects.find_all().items()} == {17: 1, 18: 1}


def test_another_record_at_the_same_position_begins_anew(suspects):
    suspects.count(held(identity="00ff"), "died")
    assert suspects.count(held(identity="11ff"), "died").exits == 1


def test_what_has_left_is_forgotten(suspects):
    suspects.forget(suspects.count(held(), "died"))
    assert suspects.find_all() == {}
    assert suspects.count(held(), "died").exits == 1


def refuse_room(_):
    raise OSError(28, "No space left on device")


def test_a_count_that_finds_no_room_is_said_and_is_none(suspects, monkeypatch, caplog):
    monkeypatch.setattr(os, "fsync", refuse_room)
    assert suspects.count(held(), "died") is None
    assert "T-0@17.json cannot be written" in caplog.text
    assert suspects.find_all() == {}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"topic": 1}'])
def test_a_file_that_cannot_be_read_accuses_no_envelope(suspects, tmp_path, content):
    suspects.count(held(), "died")
    (tmp_path / "suspects" / "T-0@17.json").write_bytes(content)
    assert suspects.find_all() == {}
    assert suspects.count(held(), "died").exits == 1


def test_the_oldest_are_let_go_beyond_a_bound(suspects, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 3)
    for offset in range(6):
        suspects.count(held(offset), "died")
        os.utime(tmp_path / "suspects" / f"T-0@{offset}.json", (offset, offset))
    assert sorted(origin.offset for origin in suspects.find_all()) == [3, 4, 5]


def test_a_topic_may_have_the_longest_name_that_kafka_takes(suspects):
    long = InFlightEnvelope(1, Origin(Partition("t" * 249, 0), 17), "uow-1", CallKind.HANDLING, "00ff")
    assert suspects.count(long, "died") is not None
    assert set(suspects.find_all()) == {long.origin}


def test_an_exit_with_several_in_flight_counts_for_the_one_that_was_a_suspect(suspects):
    suspects.count(held(17), "died")
    assert suspects.judge([held(16), held(17), held(18)], "died").suspect.exits == 2
    assert {origin.offset: each.exits for origin, each in suspects.find_all().items()} == {17: 2}


def test_without_one_or_with_two_it_counts_for_none_and_all_are_suspects(suspects):
    suspects.count(held(17), "died")
    assert suspects.judge([held(1), held(2)], "died") == (None, None, True)
    assert suspects.judge([held(2), held(17), held(3)], "died") == (None, None, True)
    assert suspects.judge([held(2), held(17), held(3)], "died") == (None, None, False)
    assert {origin.offset: each.exits for origin, each in suspects.find_all().items()} == {1: 0, 2: 0, 3: 0, 17: 1}


def test_suspects_that_find_no_room_bring_nothing_nearer(suspects, monkeypatch):
    monkeypatch.setattr(os, "fsync", refuse_room)
    assert suspects.judge([held(1), held(2)], "died") == (None, None, False)
    assert suspects.judge([held(1)], "died") == (held(1), None, False)
