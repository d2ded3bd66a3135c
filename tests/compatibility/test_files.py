"""What a fixture left in files beside a storage is understood by the code of today."""

import gzip
import json
from pathlib import Path

import pytest
from compatibility.history import AT, DEADLY, PARTITIONS
from harness.service_under_test import P0, P1, TOPIC

from guardian.takeover import find_metadata
from notification_service.connectors.dead_letters.actions import Discarded, Requeued, Requeueing
from notification_service.connectors.files.dead_letters import ActionsFile
from notification_service.connectors.files.input_archive import ArchivedMarker
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import PositionsFile
from notification_service.connectors.files.settings import FileSettings
from notification_service.supervision.suspects import Suspects
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore


@pytest.mark.parametrize("storage", ["embedded", "redis", "infinispan"])
def test_positions_name_the_commit_that_they_stand_on(kept: Path, storage: str) -> None:
    """The last commit but one: the worker was killed before what the last one brought had left."""
    positions = PositionsFile(kept / "positions" / f"{storage}.json", SystemFiles()).read()
    assert positions is not None
    assert positions.lengths == {each: (kept / "files/out" / each).stat().st_size for each in positions.lengths}
    assert positions.lengths.keys() == {"notifications.jsonl", "dead-letters.jsonl"}
    headers = json.loads((kept / "told.json").read_text(encoding="utf-8"))["headers"][storage]
    metadata = [find_metadata(positions.partitions[each].metadata) for each in PARTITIONS]
    owners = [headers[str(each.number)] for each in PARTITIONS]
    assert [(each.token, each.commit) for each in metadata if each] == [(each["token"], each["commit"] - 1) for each in owners]
    assert [each.published for each in metadata if each] == [32, 4]
    assert [positions.partitions[each].offset for each in PARTITIONS] == [18_377, 2_216]


def test_what_people_did_with_dead_letters_is_known(kept: Path) -> None:
    actions = [*ActionsFile(kept / "files/out", SystemFiles()).read()]
    assert [(type(each), each.number) for each in actions] == [
        (Discarded, f"{P0}#28"),
        (Requeueing, f"{P1}#1"),
        (Requeued, f"{P1}#1"),
    ]
    assert {(each.by, each.at) for each in actions} == {("operator", AT)}
    assert [each.because for each in actions if isinstance(each, Discarded)] == ["agreed with the bank"]


def test_the_dead_letters_are_told_apart_by_what_was_noted_of_them(kept: Path) -> None:
    """The note names a letter by the digest of its line, which must come out the same."""
    files = kept / "files"
    desk = FileDeadLetterStore(FileSettings(TOPIC, files / "in", files / "out"), lambda: pytest.fail("nothing is ordered"))
    letters = {each.letter_id: each for each in desk.letters()}
    assert [each.letter.reason.value for each in letters.values()] == ["undecodable", *["handler-failed"] * 2, "undecodable"]
    assert {each.letter_id for each in desk.actions()} == {each.letter_id for each in [*letters.values()][:2]}


def test_the_input_begins_where_the_archive_ends(kept: Path) -> None:
    partition = kept / "files/in/partition-1.jsonl"
    begins_at = ArchivedMarker(partition, SystemFiles()).offset()
    (piece,) = (kept / "files/archive").iterdir()
    assert piece.name == f"partition-1.{0:016d}-{begins_at:016d}.jsonl.gz"
    assert gzip.decompress(piece.read_bytes()) == partition.read_bytes()[:begins_at]


def test_a_suspect_is_still_counted(kept: Path) -> None:
    (suspect,) = Suspects(kept / "files").find_all().values()
    assert (suspect.origin, suspect.unit, suspect.kind) == (DEADLY.origin, DEADLY.unit, DEADLY.kind)
    assert suspect.identity == DEADLY.identity
    assert (suspect.exits, suspect.last_exit) == (1, "killed by signal 11")
