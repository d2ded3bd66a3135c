"""`resequencer archive` moves only input that is not needed any more, and afterwards everything works as before."""

import gzip
import json
import re
from pathlib import Path

import pytest
from harness.service_under_test import Service

from guardian.ports import TransportRefused
from notification_service.command_line import main
from notification_service.commands import archive as limit
from notification_service.connectors.dead_letters.actions import Requeueing
from notification_service.connectors.files.dead_letters import ActionsFile
from notification_service.connectors.files.operations import SystemFiles
from notification_service.supervision.locks import RunLock
from resequencer.errors import ResequencerError

P = "payment-status-notification"


class Archivist:
    """A service and the command `archive` on its directory."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str], storage: str = "embedded") -> None:
        self.service = Service(directory, storage=storage, acknowledge_handled=storage == "none")
        self.arguments = ["--set", f'{P}.run-directory="{directory}"', f"{P}.resequencer.storage-type={storage}"]
        self._capsys = capsys

    def call(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["archive", *self.arguments, *arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def archive(self) -> dict:
        """Archive, and return the report on partition 0."""
        code, out, err = self.call("--json")
        assert code == 0, err
        return json.loads(out.splitlines()[0])

    @property
    def archived(self) -> bytes:
        """The content of the archive, which begins at offset 0 and has no gap."""
        content = b""
        for path in sorted((self.service.directory / "archive").glob("*.gz")):
            start, end = map(int, re.findall(r"\d{16}", path.name))
            assert start == len(content)
            content += gzip.decompress(path.read_bytes())
            assert end == len(content)
        return content


@pytest.fixture
def archivist(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(limit, "_LONGEST_WAIT_MS", limit._LOOK_MS)
    made = Archivist(tmp_path, capsys)
    yield made
    made.service.kill()


@pytest.fixture
def none_archivist(tmp_path, capsys):
    made = Archivist(tmp_path, capsys, "none")
    yield made
    made.service.kill()


def test_before_anything_was_read_nothing_goes(archivist):
    archivist.service.tell("u", 1)
    answer = archivist.archive()
    because = "no record of it has been read yet"
    assert answer == {"partition": "IPF_PROCESSING_DATA-0", "moved": [], "stays_from": 0, "because": because}
    assert not (archivist.service.directory / "state.db").exists()


def test_what_was_handled_and_published_goes_while_the_service_runs(archivist):
    service = archivist.service.start()
    service.tell("u", 2, 1, 3)
    service.tell("v", 1, partition=1)
    service.run_after(1_000)
    first = service.input_size()
    answer = archivist.archive()
    assert (answer["stays_from"], [each["end"] for each in answer["moved"]]) == (first, [first])
    service.tell("u", 5, 4)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4, 5]
    assert {path.name.partition(".")[0] for path in (service.directory / "archive").glob("*.gz")} == {
        "partition-0",
        "partition-1",
    }


def test_what_waits_stays(archivist):
    service = archivist.service.start()
    service.tell("u", 1)
    kept_from = service.input_size()
    service.tell("u", 3)
    service.tell("v", 1, 2)
    service.run_after(1_000)
    answer = archivist.archive()
    assert (answer["stays_from"], answer["because"]) == (kept_from, "the next record is stashed and waits")
    service.tell("u", 2)
    service.run_after(1_000)
    assert archivist.archive()["stays_from"] == service.input_size()


def test_an_envelope_under_retry_stays(archivist):
    service = archivist.service.start()
    service.handler.away_until["u#A#1"] = service.clock.now() + 1_000_000
    service.tell("u", 1)
    service.run_after(1_000)
    assert archivist.archive()["stays_from"] == 0


@pytest.mark.slow
def test_what_was_decided_and_has_not_left_stays(archivist):
    """The service committed the output and was killed before it published it. Without the database only the input
    would know it.
    """

    class Dead(BaseException):
        pass

    def die(outputs):
        raise Dead

    service = archivist.service.start()
    service.tell("u", 1)
    service.run_after(1_000)
    service.tell("u", 2)
    service.servers.transport.publish = die
    with pytest.raises(Dead):
        service.run()
    service.kill()
    assert archivist.archive()["because"] == "the last output is not sent yet: start the service, which sends it"
    service.start().run_after(1_000)
    assert archivist.archive()["stays_from"] == service.input_size()


def test_what_was_read_and_not_acknowledged_stays(archivist):
    service = archivist.service.start()
    service.tell("u", 1)
    service.run_after(1_000)
    acknowledged = service.input_size()
    positions = service.directory / "out" / "positions.json"
    before = positions.read_bytes()
    service.tell("u", 1)
    service.run_after(1_000)
    positions.write_bytes(before)
    answer = archivist.archive()
    assert (answer["stays_from"], answer["because"]) == (acknowledged, "what follows is not acknowledged yet")


def test_what_a_requeue_was_begun_behind_stays(archivist):
    service = archivist.service.start()
    service.tell("u", 1)
    beyond = service.input_size()
    service.tell("v", 1)
    service.run_after(1_000)
    actions = ActionsFile(service.directory / "out", SystemFiles())
    actions.append([Requeueing(number="T-0#1", letter="x", by="anna", at="now", partition=0, beyond=beyond)])
    actions.close()
    answer = archivist.archive()
    assert answer["stays_from"] == beyond
    assert answer["because"].startswith("the requeue of T-0#1 was interrupted")


def test_with_storage_none_what_is_not_handled_stays(none_archivist):
    service = none_archivist.service.start()
    service.tell("u", 1)
    service.run()
    for _ in range(2):
        # Until its resequencer is idle, and the position may advance again.
        service.run_after(40_000)
    kept_from = service.input_size()
    service.tell("v", 2)
    service.run_after(1_000)
    assert none_archivist.archive()["stays_from"] == kept_from
    service.kill()
    service.start()
    service.tell("v", 1)
    service.run()
    assert service.sequences("v") == [1, 2]


def test_after_the_storage_was_lost_nothing_is_lost_and_what_is_not_read_again_is_said(archivist, caplog):
    service = archivist.service.start()
    service.tell("u", 1, 2)
    service.tell("w", 1)
    service.run_after(1_000)
    moved_to = service.input_size()
    service.tell("u", 4)
    service.run_after(1_000)
    assert archivist.archive()["stays_from"] == moved_to
    service.stop()
    service.forget_database()
    caplog.set_level("INFO")
    service.start().run()
    assert f"begins at offset {moved_to}; the lines before it are in the archive" in caplog.text
    assert f"Reading from offset {moved_to}" in caplog.text
    service.tell("u", 3)
    service.run_after(21_000)
    answer = {(each.identity, each.is_possible_duplicate) for each in service.notifications}
    assert answer == {("u#A#1", False), ("u#A#2", False), ("w#A#1", False), ("u#A#3", False), ("u#A#4", True)}


def test_after_the_storage_was_set_back_behind_the_archive_it_heals_and_says_so(archivist, caplog):
    service = archivist.service.start()
    service.tell("u", 1)
    service.run_after(1_000)
    service.stop()
    kept = {path: path.read_bytes() for path in service.directory.glob("state.db*")}
    read_to = service.input_size()
    service.start()
    service.tell("u", 2, 3)
    service.run_after(1_000)
    archivist.archive()
    service.stop()
    service.forget_database()
    for path, content in kept.items():
        path.write_bytes(content)
    service.start()
    service.tell("u", 4)
    service.run()
    assert f"the records {read_to} to" in caplog.text
    service.run_after(21_000)
    # The first was pending in the database that came back.
    assert [(each.sequence, each.is_possible_duplicate) for each in service.notifications] == [
        (1, False),
        (2, False),
        (3, False),
        (1, True),
        (4, False),
    ]


@pytest.mark.slow
def test_what_was_set_back_altogether_is_refused_with_the_remedy(archivist):
    service = archivist.service.start()
    service.tell("u", 1)
    service.run_after(1_000)
    service.stop()
    files = [*service.directory.glob("state.db*"), *(service.directory / "out").iterdir()]
    kept = {path: path.read_bytes() for path in files}
    service.start()
    service.tell("u", 2)
    service.run_after(1_000)
    archivist.archive()
    service.stop()
    service.forget_database()
    for path, content in kept.items():
        path.write_bytes(content)
    service.start()
    with pytest.raises(TransportRefused, match="put the archived records back"):
        service.run()


def test_dead_letters_of_archived_records_are_requeued_as_before(archivist, capsys):
    service = archivist.service.start()
    service.handler.never.add("u#A#1")
    service.tell("u", 1)
    service.run_after(1_000)
    archivist.archive()
    assert main(["dead-letters", "requeue", "--all", *archivist.arguments]) == 0
    capsys.readouterr()
    service.handler.never.clear()
    service.run()
    assert service.sequences("u") == [1]
    archivist.service.run_after(1_000)
    archivist.archive()
    assert archivist.archived.count(b"requeued-from") == 1


def test_what_is_said_names_the_files_and_what_keeps_the_rest(archivist):
    service = archivist.service.start()
    service.tell("u", 1, 3)
    service.run_after(1_000)
    code, out, _ = archivist.call()
    assert code == 0
    moved = re.search(r"offsets 0 to (\d+) moved to \S+/archive/partition-0\.0{16}-\d{16}\.jsonl\.gz ", out)
    assert moved is not None
    assert f"from offset {moved[1]} on it stays" in out
    assert "nothing moved; from offset" in archivist.call()[1]


def test_only_one_archives_at_a_time(archivist):
    lock = RunLock(archivist.service.directory / "archive")
    lock.acquire()
    code, _, err = archivist.call()
    lock.release()
    assert (code, "another `archive` command is running" in err) == (1, True)


def test_a_storage_that_cannot_be_asked_what_waits_is_refused(archivist):
    archivist.arguments = ["--set", f'{P}.run-directory="{archivist.service.directory}"', f"{P}.resequencer.storage-type=redis"]
    code, _, err = archivist.call()
    assert code == 3
    assert "redis cannot tell what waits in it" in err


def test_a_damaged_database_is_refused(archivist):
    service = archivist.service.start()
    service.tell("u", 1)
    service.run_after(1_000)
    service.stop()
    (service.directory / "state.db").write_bytes(b"")
    code, _, err = archivist.call()
    assert code == 1
    assert "it is empty, so it was truncated" in err
    assert archivist.archived == b""


def test_an_unfinished_move_is_no_reason_to_stop_the_service(archivist, monkeypatch):
    service = archivist.service.start()
    service.tell("u", *range(1, 31))
    service.run_after(1_000)

    def fail(self, descriptor, start, length):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(SystemFiles, "punch", fail)
        assert archivist.call()[0] == 4
    try:
        service.tell("u", 31)
        service.restart()
        service.run()
    except ResequencerError as error:
        pytest.fail(str(error))
    assert service.sequences("u") == [*range(1, 32)]
    archivist.archive()
