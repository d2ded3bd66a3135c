"""A record that cannot be read stops neither its partition nor its neighbours, on a real broker."""

from contextlib import closing

import pytest

from guardian.ports import Channel, OutputRecord
from notification_service.connectors.dead_letters.port import AskedFor
from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Refusal
from tests.notification_service.connectors.kafka.raw_batches import GZIP, batch, corrupt, record, segment, send_batch
from tests.notification_service.connectors.kafka.stage import KafkaStage, KafkaWorker

pytestmark = pytest.mark.slow


def unread(worker: KafkaWorker) -> list[str]:
    """Return the notes about partitions that are not read."""
    return [each for each in worker.transport.standing().notes if " is not read from offset " in each]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_header_name_that_is_not_utf_8_is_one_dead_letter(stage: KafkaStage, codec: int) -> None:
    odd = record(1, b'{"unitOfWorkId": "uow"}', (b"Gr\xfc\xdfe", b"\xff"))
    send_batch(stage.bootstrap, stage.topics.input, batch([record(0, b"a"), odd, record(2, b"c")], codec=codec))
    stage.send(b"d")
    stage.send(b"e", partition=1)
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) == 5, "all records", worker)
    first, second = stage.partitions
    assert [each.value for each in worker.records if each.origin.partition == second] == [b"e"]
    came = [each for each in worker.records if each.origin.partition == first]
    assert [(each.origin.offset, each.value) for each in came] == [
        (0, b"a"),
        (1, b'{"unitOfWorkId": "uow"}'),
        (2, b"c"),
        (3, b"d"),
    ]
    refusal = EnvelopeDecoder(DecodingSettings(needs_sequence=False)).decode(came[1])
    assert refusal == Refusal(DeadLetterReason.UNDECODABLE, "the name of a header is not UTF-8: Gr\\xfc\\xdfe")
    assert (came[1].key, came[1].headers) == (b"k", (("Gr\\xfc\\xdfe", b"\xff"),))
    assert unread(worker) == []


def test_records_that_share_an_offset_come_at_offsets_of_their_own(stage: KafkaStage) -> None:
    """Brokers accept such a batch if it is not compressed."""
    send_batch(stage.bootstrap, stage.topics.input, batch([record(0, b"a"), record(0, b"b"), record(2, b"c")]))
    stage.send(b"d")
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) == 4, "all records", worker)
    assert [each.origin.offset for each in worker.records] == [0, 1, 2, 3]
    assert [each.defect for each in worker.records] == [
        None,
        "its batch gives it offset 0, which belongs to another record",
        None,
        None,
    ]


def test_a_batch_that_a_disk_has_corrupted_sets_its_partition_aside_until_it_is_mended(
    stage: KafkaStage, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stage.partitions
    stage.send(b"before")
    stage.send(b"corrupt")
    stage.send(b"behind")
    corrupt(segment(stage.kafka, stage.topics.input), b"corrupt", b"changed")
    stage.send(b"of the other", partition=1)
    worker = stage.worker(consumer={"metadata.max.age.ms": 1_000})
    stage.poll_until(lambda: unread(worker), "the note", worker)
    stage.poll_until(lambda: worker.read_to[second] == 1, "the other partition", worker)
    for number in range(3):
        stage.send(b"more", partition=1)
        stage.poll_until(lambda read_to=number + 2: worker.read_to[second] == read_to, "more of the other partition", worker)
    assert sorted(worker.values()) == [b"before", b"more", b"more", b"more", b"of the other"]
    assert worker.read_to[first] == 1
    assert worker.poll().log_ends[first] == 3
    (note,) = unread(worker)
    assert note.startswith(f"{first} is not read from offset 1 on, other partitions are: ")
    assert "at offset 1 failed crc check. Its bytes were changed on the way or on a broker's disk" in note
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == [note]
    corrupt(segment(stage.kafka, stage.topics.input), b"changed", b"corrupt")
    stage.poll_until(lambda: worker.read_to[first] == 3, "what lay behind it", worker)
    assert [each.value for each in worker.records if each.origin.partition == first] == [b"before", b"corrupt", b"behind"]
    assert unread(worker) == []


def test_what_no_codec_can_unpack_sets_its_partition_aside(stage: KafkaStage) -> None:
    stage.send(b"x" * 10_000, compression_type="gzip")
    log = segment(stage.kafka, stage.topics.input)
    packed = log.read_bytes()[61:71]
    corrupt(log, packed, b"\0" * 10)
    stage.send(b"of the other", partition=1)
    worker = stage.worker(consumer={"check.crcs": False})
    stage.poll_until(lambda: worker.records and unread(worker), "both", worker)
    assert worker.values() == [b"of the other"]


def test_what_other_programs_wrote_to_the_topic_of_dead_letters_hides_none_of_them(stage: KafkaStage) -> None:
    odd = record(0, b"not ours", (b"Gr\xfc\xdfe", b"\xff"))
    send_batch(stage.bootstrap, stage.topics.dead_letters, batch([odd]))
    worker = stage.worker()
    stage.settle(worker)
    headers = (
        ("dead-letter-reason", b"undecodable"),
        ("dead-letter-source-position", f"{stage.topics.input}-0@0".encode()),
        ("dead-letter-error", b"it is odd"),
        ("dead-letter-at", b"2026-03-28T23:33:55.941Z"),
    )
    worker.publish(stage.partitions[0], OutputRecord(1, Channel.DEAD_LETTERS, b"k", headers, b"ours"))
    with closing(KafkaDeadLetterStore(stage.settings("store"), AskedFor(), lambda: ("me", 0))) as store:
        assert [each.letter.record.value for each in store.letters()] == [b"ours"]
