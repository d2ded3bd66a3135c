"""What of a source went before it was read: the job says so, until the part is back or an operator accepts the loss."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness.ledger_stage import RETENTION_MS, LedgerStage

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position, TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileSink
from notification_service.delivery.core.jobs import JobState
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.feed import Feed
from notification_service.delivery.file_feed import FileFeed
from notification_service.delivery.file_spans import FileSpanFeed, span_of
from notification_service.delivery.source_reader import SourceReader, Sources
from resequencer.record import Partition

Make = Callable[..., LedgerStage]
P0 = Partition("T", 0)


class Service:
    """Writes notifications N1, N2, … as the service does."""

    def __init__(self, directory: Path, rotate_bytes: int | None = None) -> None:
        self.directory = directory
        self.output = directory / "notifications.jsonl"
        self._settings = FileSettings("T", directory / "in", directory, rotate_bytes=rotate_bytes)
        self._count = 0
        self.start()

    def start(self) -> None:
        self._sink = FileSink(self._settings, SystemFiles())
        self._sink.position(P0)

    def stop(self) -> None:
        self._sink.close()

    def write(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            headers = (("notification-id", b"N%d" % self._count),)
            record = OutputRecord(self._count, Channel.NOTIFICATIONS, b"u", headers, b"{}")
            self._sink.publish([PartitionOutput(P0, (record,), Position(self._count, "m"))])


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "out")


class Reading:
    """A reader of the service's output, for the receiver `r`."""

    def __init__(self, it: LedgerStage, service: Service, feed: Feed | None = None, owner: str = "w1") -> None:
        self._it = it
        self.feed = made = feed or FileFeed(service.output, SystemFiles(), it.receiver.select)
        self._reader = SourceReader(it.ledger, "r", owner, Sources("live", lambda *_: made), lambda: 0)

    def close(self) -> None:
        self._reader.close()

    def read(self) -> list[str]:
        while self._reader.read():
            pass
        return self._it.deliver_all()


def state(it: LedgerStage, job: str = "live-r") -> JobState:
    found: JobState = it.job(job).state
    return found


def test_what_was_moved_away_before_it_was_read_is_missing_until_it_is_back(
    stage: Make, service: Service, tmp_path: Path
) -> None:
    it = stage()
    reading = Reading(it, service)
    service.write(2)
    assert reading.read() == ["N1", "N2"]
    service.write(3)
    service.output.rename(tmp_path / "away.jsonl")
    assert (reading.read(), state(it)) == ([], JobState.MISSING)
    service.write(1)
    assert (reading.read(), state(it)) == (["N6"], JobState.MISSING)
    size = (tmp_path / "away.jsonl").stat().st_size
    assert it.job("live-r").lacks == f"{size * 3 // 5} bytes of {service.output}, which were removed before they were read"
    assert [(each.missing_jobs, each.stalled_jobs) for each in it.ledger.gates()] == [(1, 0)]
    (tmp_path / "away.jsonl").rename(service.directory / "notifications.000001.jsonl")
    assert (reading.read(), state(it), it.job("live-r").missing) == (["N3", "N4", "N5"], JobState.ACTIVE, 0)


def test_it_is_noticed_although_no_delivery_worker_and_no_service_ran_meanwhile(
    stage: Make, service: Service, tmp_path: Path
) -> None:
    it = stage()
    assert Reading(it, service).read() == []
    service.write(3)
    service.stop()
    service.output.rename(tmp_path / "away.jsonl")
    service.start()
    service.write(1)
    service.output.rename(tmp_path / "also-away.jsonl")
    service.write(1)
    assert (Reading(it, service).read(), state(it)) == (["N5"], JobState.MISSING)
    gone = sum((tmp_path / name).stat().st_size for name in ("away.jsonl", "also-away.jsonl"))
    assert it.job("live-r").missing == gone


def test_a_rotated_file_that_goes_unread_and_an_output_that_is_emptied_are_missing(stage: Make, tmp_path: Path) -> None:
    it, service = stage(), Service(tmp_path / "out", rotate_bytes=1)
    reading = Reading(it, service)
    reading.read()
    service.write(3)
    (service.directory / "notifications.000002.jsonl").unlink()
    assert (reading.read(), state(it)) == (["N1", "N3"], JobState.MISSING)
    it.ledger.accept_loss("live-r", "ann", "a trial")
    service.write(1)
    service.output.write_bytes(b"")
    service.write(1)
    assert (reading.read(), state(it)) == (["N5"], JobState.MISSING)


def test_a_worker_that_ends_gives_its_sources_to_the_next_one_at_once(stage: Make, service: Service) -> None:
    it = stage()
    before, after = (Reading(it, service, owner=name) for name in ("w1", "w2"))
    service.write(1)
    assert before.read() == ["N1"]
    service.write(1)
    assert after.read() == [], "the right is another one's"
    before.close()
    assert after.read() == ["N2"]


def test_an_output_that_was_set_back_loses_nothing_that_comes_at_places_that_were_read(
    stage: Make, service: Service, tmp_path: Path
) -> None:
    """As a run directory that is restored from a copy while the ledger is not: the service makes the rest anew, otherwise."""
    it = stage()
    service.write(2)
    copies = {path: path.read_bytes() for path in service.directory.iterdir()}
    service.write(3)
    read = Reading(it, service).read()
    assert read == ["N1", "N2", "N3", "N4", "N5"]
    service.stop()
    for path, content in copies.items():
        path.write_bytes(content)
    service.start()
    service.write(4)
    for _ in range(2):
        assert (Reading(it, service).read(), state(it)) == ([], JobState.MISSING)
    assert "before position" in (it.job("live-r").lacks or "")
    it.ledger.accept_loss("live-r", "ann", "restored")
    reading = Reading(it, service)
    assert (reading.read(), state(it)) == (["N6", "N7", "N8", "N9"], JobState.ACTIVE)
    service.write(1)
    assert (reading.read(), state(it)) == (["N10"], JobState.ACTIVE)


def test_while_an_output_that_was_set_back_is_not_read_nothing_that_was_delivered_is_forgotten(
    stage: Make, service: Service, tmp_path: Path
) -> None:
    it = stage()
    service.write(2)
    reading = Reading(it, service)
    assert reading.read() == ["N1", "N2"]
    service.output.write_bytes(service.output.read_bytes().replace(b"N2", b"X2"))
    for _ in range(3):
        it.now += RETENTION_MS + 1
        assert (reading.read(), state(it)) == ([], JobState.MISSING)
        it.ledger.delete_expired()
    it.ledger.accept_loss("live-r", "ann", "a trial")
    assert (reading.read(), it.job("live-r").duplicates) == (["X2"], 1)


def test_a_position_that_a_version_without_marks_has_moved_is_believed(stage: Make, service: Service) -> None:
    it = stage()
    service.write(1)
    positions: dict[str, int] = {}
    feed = FileFeed(service.output, SystemFiles(), it.receiver.select)
    while not (portion := feed.read(positions, 9)).is_end:
        positions |= portion.positions
    positions |= portion.positions
    service.write(2)
    (part,) = (each for each in positions if each + "~" in positions)
    positions |= dict.fromkeys((part, "accounted"), service.output.stat().st_size)  # As that version notes it.
    portion = FileFeed(service.output, SystemFiles(), it.receiver.select).read(positions, 9)
    assert (portion.items, portion.is_end, portion.lacks) == ([], True, None)


def test_what_is_not_noted_as_written_is_not_read_for_a_power_cut_may_take_it(stage: Make, service: Service) -> None:
    it = stage()
    service.write(1)
    reading, torn = Reading(it, service), service.output.read_bytes()
    with service.output.open("ab") as file:
        file.write(torn.replace(b"N1", b"N0"))
    assert reading.read() == ["N1"]
    service.output.write_bytes(torn)
    service.start()
    service.write(1)
    assert (reading.read(), state(it)) == (["N2"], JobState.ACTIVE)


def test_an_output_directory_that_is_not_mounted_is_not_taken_for_an_end(stage: Make, service: Service, tmp_path: Path) -> None:
    it = stage()
    service.write(2)
    reading = Reading(it, service)
    assert reading.read() == ["N1", "N2"]
    service.directory.rename(tmp_path / "away")
    with pytest.raises(TransportUnavailable, match="out: is missing, though output in it was read"):
        reading.feed.read({"a-part": 5}, 9)
    assert reading.read() == []
    (tmp_path / "away").rename(service.directory)
    service.write(1)
    assert Reading(it, service).read() == ["N3"]


def test_of_files_that_begin_alike_each_is_known_by_what_was_read_of_it(stage: Make, service: Service) -> None:
    it = stage()
    service.write(1)
    old = service.output.read_bytes()
    rotated = service.directory / "notifications.000001.jsonl"
    rotated.write_bytes(old + old.replace(b"N1", b"X1"))
    reading = Reading(it, service)
    assert reading.read() == ["N1", "X1"]
    rotated.unlink()
    service.write(1)
    for again in (reading, Reading(it, service)):
        assert (again.read(), state(it)) == (["N2"] if again is reading else [], JobState.ACTIVE)


def test_what_was_read_before_it_went_is_not_missing_nor_what_went_before_the_job_began(stage: Make, tmp_path: Path) -> None:
    it, service = stage(), Service(tmp_path / "out", rotate_bytes=200)
    service.write(5)
    (service.directory / "notifications.000001.jsonl").unlink()
    reading = Reading(it, service)
    assert reading.read() == ["N4", "N5"]
    for _ in range(4):
        for path in service.directory.glob("notifications*.jsonl"):
            path.unlink()
        service.write(3)
        assert (len(reading.read()), state(it)) == (3, JobState.ACTIVE)
    service.output.rename(tmp_path / "away.jsonl")
    (tmp_path / "away.jsonl").rename(service.output)
    service.write(1)
    assert (reading.read(), state(it), it.job("live-r").missing) == (["N18"], JobState.ACTIVE, 0)


def test_a_copy_that_was_put_back_and_positions_that_were_taken_away_hide_no_later_loss(stage: Make, service: Service) -> None:
    it = stage()
    reading = Reading(it, service)
    service.write(3)
    reading.read()
    service.output.with_name("notifications.000001.jsonl").write_bytes(service.output.read_bytes())
    content = service.output.read_bytes()
    service.output.unlink()
    service.output.write_bytes(content)
    service.write(1)
    assert (reading.read(), state(it)) == (["N4"], JobState.ACTIVE)
    service.stop()
    (service.directory / "positions.json").unlink()
    service.start()
    service.write(1)
    assert (reading.read(), state(it)) == (["N5"], JobState.ACTIVE)
    service.write(1)
    service.output.unlink()
    assert (reading.read(), state(it)) == ([], JobState.MISSING)


def test_an_order_with_a_reason_ends_it_and_what_comes_back_later_is_delivered(
    stage: Make, service: Service, tmp_path: Path
) -> None:
    it = stage()
    reading = Reading(it, service)
    reading.read()
    with pytest.raises(JobRefused, match="nothing of the source of live-r is missing"):
        it.ledger.accept_loss("live-r", "ann", "why not")
    service.write(2)
    service.output.rename(tmp_path / "away.jsonl")
    service.write(1)
    reading.read()
    intake = it.ledger.open_intake("live-r", "w1")
    assert intake is not None
    with pytest.raises(JobRefused, match="give a reason"):
        it.ledger.accept_loss("live-r", "ann", " ")
    lacks = it.job("live-r").lacks
    assert it.ledger.accept_loss("live-r", "ann", "sent by hand") == lacks
    assert it.job("live-r").accepted.endswith(f" by ann: {lacks}; sent by hand\n")
    with pytest.raises(JobRefused, match="nothing of the source"):
        it.ledger.accept_loss("live-r", "ann", "once more")
    assert (reading.read(), state(it)) == ([], JobState.ACTIVE)
    (tmp_path / "away.jsonl").rename(service.directory / "notifications.000001.jsonl")
    assert (reading.read(), state(it)) == (["N1", "N2"], JobState.ACTIVE)
    service.write(1)
    service.output.unlink()
    assert (reading.read(), state(it)) == ([], JobState.MISSING), "the order holds for what was missing then"


def test_a_job_over_files_does_not_complete_without_one_of_them_but_by_order(
    stage: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it, paths = stage("live = false"), [tmp_path / f"{name}.jsonl" for name in ("one", "two")]
    service = Service(tmp_path / "out")
    for path in paths:
        service.write(1)
        service.output.rename(path)
    service.write(1)
    spans = [span_of(path, is_written=False) for path in paths]
    it.ledger.start_job("j", "r", "spans", "ann")
    paths[0].rename(tmp_path / "away.jsonl")
    reading = Reading(it, service, FileSpanFeed(spans, SystemFiles(), it.receiver.select))
    for _ in range(2):
        assert (reading.read(), state(it, "j")) == ([], JobState.MISSING)
    assert caplog.text.count(f"job j lacks {spans[0].size} bytes of {paths[0]}") == 1
    assert "accept-loss j --because TEXT" in caplog.text
    it.ledger.accept_loss("j", "ann", "sent by hand")
    assert (reading.read(), state(it, "j"), it.job("j").expected) == (["N2"], JobState.COMPLETE, 1)


def test_positions_of_the_version_before_are_taken_on(stage: Make, service: Service) -> None:
    """A job that has read, and whose service has written, before either kept an account."""
    it = stage()
    service.write(3)
    service.output.rename(service.directory / "notifications.000001.jsonl")
    service.write(2)
    positions = service.directory / "positions.json"
    known = msgspec.json.decode(positions.read_bytes())
    del known["before"]
    positions.write_bytes(msgspec.json.encode(known))
    service.stop()
    service.start()
    reading = Reading(it, service)
    assert (len(reading.read()), state(it)) == (5, JobState.ACTIVE)
    service.write(1)
    service.output.unlink()
    assert (reading.read(), state(it)) == ([], JobState.MISSING)
