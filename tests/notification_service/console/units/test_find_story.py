"""The story of a unit: what a real storage, real files of dead letters and real outputs say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import msgspec
import pytest
from harness.console_stage import make_sources
from harness.counted_groups import GroupStage
from harness.driving import PARTITION, Driven, Envelopes, drive
from harness.ledger_stage import LedgerStage, item
from harness.receivers import receiver
from harness.service_under_test import FakeClock
from harness.stored_units import StoredUnits
from msgspec.structs import replace

from guardian.ports import TransportUnavailable
from notification_service.commands.units import story_lines
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.rotated_names import rotated_path
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, encode_line
from notification_service.console.find_unit import NOT_STORED, Search, find_story
from notification_service.console.sources import ArrivedEarlier, Sources
from notification_service.console.unit_story import UnitStory, state_of
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import MdsObject
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.status.report import Identity, State, UnitWait, report
from notification_service.status.service_report import service_report
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from notification_service.wiring.sent_notifications import OutputFiles, read_notification
from resequencer.clock import Instant, instant_of
from resequencer.errors import DependencyUnavailable, TransientError
from resequencer.record import Origin, Partition
from resequencer.storage_port import StorageUnavailable, WaitKind, Waits
from resequencer.strategies.window import OrderBy
from resequencer.unit_codec import UnitCodec

OTHER = Partition(PARTITION.topic, 1)


class Stage:
    """A storage, an output directory, and the sources over both."""

    def __init__(self, directory: Path, strategy: str = "SEQUENCE") -> None:
        self.strategy = make_strategy(StrategySettings(strategy))
        self.units = StoredUnits(directory)
        self.out = directory / "out"
        self.out.mkdir()
        settings = FileSettings(PARTITION.topic, directory / "in", self.out)
        self.sources: Sources = make_sources(
            directory,
            open_view=self.units.open_view,
            partitions=[PARTITION, OTHER],
            open_dead_letters=lambda asked_for, by: FileDeadLetterStore(settings, by),
            clock=FakeClock(),
        )._replace(
            codec=UnitCodec(
                self.strategy, EnvelopeDecoder(DecodingSettings(self.strategy.needs_sequence)).decode, LATEST_OBJECTS
            ),
            find_sent=OutputFiles(self.out, SystemFiles()).find_sent,
        )

    def driven(self) -> Driven:
        return Driven(self.strategy)

    def tell(self, unit: str = "uow-1", search: Search | None = None) -> UnitStory:
        return find_story(self.sources, nullcontext(self.units.open_view()), unit, search or Search())

    def notify(self, unit: str, number: int, file: str = "notifications.jsonl", **headers: str) -> None:
        texts = {"notification-id": f"n{number}", "event-name": "E", "process-flow-name": "A", **headers}
        value = b'{"CstmrPmtStsRpt":{"GrpHdr":{"MsgId":"x","CreDtTm":"2026-03-28T23:33:55.941Z"}}}'
        line = Line(value, unit.encode(), tuple((name, text.encode()) for name, text in texts.items()))
        with (self.out / file).open("ab") as opened:
            opened.write(encode_line(line, number=f"{PARTITION}#{number}"))

    def set_aside(self, unit: str, number: int, at: str = "2026-03-28T23:33:55.941Z") -> None:
        headers = {
            "dead-letter-reason": "handler-failed",
            "dead-letter-error": "no bank",
            "dead-letter-source-position": f"{PARTITION}@7",
            "dead-letter-at": at,
        }
        line = Line(b"{}", unit.encode(), tuple((name, text.encode()) for name, text in headers.items()))
        with (self.out / "dead-letters.jsonl").open("ab") as opened:
            opened.write(encode_line(line, number=f"{PARTITION}#{number}", verbatim=True))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.units.close()


def test_a_waiting_unit_says_what_for_since_when_and_what_is_stashed(stage: Stage) -> None:
    driven, envelope = stage.driven(), Envelopes()
    driven.arrive(envelope(1))
    stage.units.keep(driven)
    driven.arrive(envelope(3, mds=("PAIN_001",)))
    stage.units.keep(driven)
    story = stage.tell()
    assert story.partition == str(PARTITION)
    assert story.wait is not None
    assert (story.wait.waits_for, story.wait.kind, story.wait.stashed) == ("sequence:2", "deadline", 1)
    assert story.state is not None
    assert story.state.handled == 1
    assert dict(story.state.facts) == {"Next sequence expected": "2"}
    assert [(each.flow, each.counted_to, each.handled_to) for each in story.state.flows] == [("A", 1, 1)]
    (stashed,) = story.state.stash
    assert (stashed.position, stashed.sequence, stashed.flow) == (f"{PARTITION}@2", 3, "A")
    assert (stashed.events, stashed.objects, stashed.stashed_at) == (("Event3",), ("PAIN_001",), "1970-01-01T00:16:40.000Z")
    assert story.problems == ()
    assert story.looked_in == (str(PARTITION), str(OTHER))


def test_a_unit_with_everything_handled_waits_for_nothing_and_names_its_payment_data_without_content(stage: Stage) -> None:
    driven = stage.driven()
    driven.arrive(Envelopes()(1, mds=("PAIN_001",)))
    stage.units.keep(driven)
    story = stage.tell()
    assert story.is_known
    assert story.wait is None
    assert story.state is not None
    assert [(each.kind, each.name, each.size_bytes) for each in story.state.payment_data] == [("mds", "PAIN_001", 8)]
    assert b'"at"' not in msgspec.json.encode(story)


def test_the_head_under_retry_says_its_attempts_and_why_the_last_one_failed(stage: Stage) -> None:
    driven, envelope = stage.driven(), Envelopes()
    first = envelope(1)
    driven.handler.fail(first, TransientError("the rates are locked"))
    driven.arrive(first)
    stage.units.keep(driven)
    story = stage.tell()
    assert story.state is not None
    attempts = story.state.attempts
    assert attempts is not None
    assert (attempts.made, attempts.position, attempts.dependency) == (1, f"{PARTITION}@1", None)
    assert "the rates are locked" in str(attempts.why)
    assert [each.sequence for each in story.state.stash] == [1]


def test_a_unit_that_waits_for_a_server_names_it(stage: Stage) -> None:
    driven, envelope = stage.driven(), Envelopes()
    first = envelope(1)
    driven.handler.fail(first, DependencyUnavailable("rates"))
    driven.arrive(first)
    stage.units.keep(driven)
    story = stage.tell()
    assert story.wait is not None
    assert story.wait.kind == "dependency"
    assert story.state is not None
    assert story.state.attempts is not None
    assert (story.state.attempts.dependency, story.state.attempts.calls, story.state.attempts.made) == ("rates", 1, 0)


@pytest.mark.parametrize(
    ("strategy", "facts"),
    [
        ("SEQUENCE", {"Next sequence expected": "5", "Skipped": "the numbers 1 to 3 were given up"}),
        ("STRICT_SEQUENCE", {}),
        (
            "FULL_PAIN001",
            {"Parts seen": "PAIN_001", "Parts missing": "PAIN_001_PAYMENT_INSTRUCTION, PAIN_001_PAYMENT_TRANSACTION"},
        ),
    ],
)
def test_the_state_of_each_strategy_reads_as_words(tmp_path: Path, strategy: str, facts: dict[str, str]) -> None:
    stage = Stage(tmp_path, strategy)
    driven = stage.driven()
    driven.arrive(Envelopes()(4, mds=("PAIN_001",)))
    driven.expire()
    stage.units.keep(driven)
    story = stage.tell()
    stage.units.close()
    assert story.state is not None
    assert dict(story.state.facts) == facts


def test_the_states_of_previous_window_and_complete_read_as_words() -> None:
    envelopes, previous = Envelopes(), drive("PREVIOUS")
    previous.arrive(envelopes(1, identity="a"), replace(envelopes(2, identity="b"), previous="a"))
    by_number = drive("WINDOW", order_by=OrderBy.SEQUENCE, stash_timeout_ms=1_000)
    by_time = drive("WINDOW", stash_timeout_ms=1_000)
    complete = drive("COMPLETE", required_parts=("created", "paid"))
    complete.arrive(replace(envelopes(3), parts=("paid",)))
    complete.expire()

    def facts(unit: Driven) -> dict[str, str]:
        return dict(state_of(unit.unit, unit.strategy).facts)

    assert facts(previous) == {"Ids remembered": "2"}
    assert facts(complete) == {"Parts seen": "paid", "Parts missing": "created"}
    assert facts(by_number) == facts(by_time) == {"Highest released": "none"}
    for unit in (by_number, by_time):
        unit.arrive(replace(envelopes(4), time=999_000))
        unit.expire()
    assert facts(by_number) == {"Highest released": "4"}
    assert facts(by_time) == {"Highest released": "1970-01-01T00:16:39.000Z"}


def test_a_unit_is_found_in_whatever_partition_it_is_and_named_where_it_is_twice(stage: Stage) -> None:
    driven = stage.driven()
    driven.arrive(Envelopes()(2))
    assert driven.last is not None
    assert driven.last.change is not None
    stage.units.commit(driven.last.change, partition=OTHER)
    assert stage.tell().partition == str(OTHER)
    stage.units.keep(driven)
    both = stage.tell()
    assert {str(both.partition), *both.also_in} == {str(PARTITION), str(OTHER)}
    assert stage.tell(search=Search(partition=PARTITION)).looked_in == (str(PARTITION),)


def test_a_unit_that_is_not_there_says_what_that_can_mean(stage: Stage) -> None:
    stage.units.put("other", b"", None)
    story = stage.tell("uow-9")
    assert (story.is_known, story.partition, story.state) == (False, None, None)
    assert story.looked_in == (str(PARTITION), str(OTHER))
    assert any("expired" in each for each in story.meaning)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (b"\xff\xfe no state", "damaged"),
        (msgspec.msgpack.encode((99, "SEQUENCE", (), b"", -1, None)), "format 99"),
        (msgspec.msgpack.encode((1, "SEQUENCE", ("x",), b"", -1, None)), "damaged"),
    ],
)
def test_damaged_or_newer_data_is_a_problem_in_words_and_the_wait_is_told_all_the_same(
    stage: Stage, state: bytes, problem: str
) -> None:
    stage.units.put("uow-1", state, Waits(2, WaitKind.DEADLINE, 1, "sequence:2", "SEQUENCE", 1, 10))
    story = stage.tell()
    assert story.state is None
    assert story.wait is not None
    assert problem in story.problems[0]


def test_what_left_is_read_from_the_output_and_its_rotated_files_in_order(stage: Stage) -> None:
    stage.notify("uow-1", 1, rotated_path(stage.out / "notifications.jsonl", 1).name)
    stage.notify("uow-2", 2)
    stage.notify("uow-1", 3, incomplete="sequence:2", late="true", **{"released-by": "operator"})
    left = stage.tell().left
    assert left.is_complete
    assert [(each.notification_id, each.marks, each.created_at) for each in left.found] == [
        ("n1", (), "2026-03-28T23:33:55.941Z"),
        ("n3", ("incomplete sequence:2", "released-by operator", "late"), "2026-03-28T23:33:55.941Z"),
    ]


def test_what_left_incomplete_is_told_once_for_each_thing_that_was_missing(stage: Stage) -> None:
    for number, missing in ((1, "sequence:4"), (2, "sequence:4"), (3, "PAIN_001")):
        stage.notify("uow-1", number, incomplete=missing)
    stage.notify("uow-1", 4, late="true")
    listed = [(each.missing, each.at, each.notifications) for each in stage.tell().incomplete]
    assert listed == [("sequence:4", "2026-03-28T23:33:55.941Z", 2), ("PAIN_001", "2026-03-28T23:33:55.941Z", 1)]


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (b'{"CstmrPmtStsRpt":{"OrgnlPmtInfAndSts":[{"TxInfAndSts":[{"TxSts":"ACSP"},{"TxSts":"ACSP"}]}]}}', "ACSP"),
        (b'{"CstmrPmtStsRpt":{"OrgnlGrpInfAndSts":{"GrpSts":"PART"},"OrgnlPmtInfAndSts":[{"PmtInfSts":"RJCT"}]}}', "PART, RJCT"),
        (b'{"CstmrPmtStsRpt":{"OrgnlPmtInfAndSts":"else"}}', None),
        (b"<Document/>", None),
    ],
)
def test_the_status_of_what_left_is_that_of_its_report(value: bytes, status: str | None) -> None:
    assert read_notification((), value).status == status


def test_stashed_envelopes_are_told_by_sequence(stage: Stage) -> None:
    driven, envelope = stage.driven(), Envelopes()
    for sequence in (4, 3, 5):
        driven.arrive(envelope(sequence))
        stage.units.keep(driven)
    story = stage.tell()
    assert story.state is not None
    assert [each.sequence for each in story.state.stash] == [3, 4, 5]


def test_an_unknown_unit_of_a_stopped_service_says_how_much_is_unread(stage: Stage) -> None:
    stage.units.put("other", b"", None)
    story = stage.tell("uow-9")
    view = stage.units.open_view()
    header = view.find_header(PARTITION)
    view.close()
    assert header is not None
    assert header.next_offset is not None
    assert "does not run here" in story.meaning[0]
    assert f"{PARTITION} {100 - header.next_offset}" in story.meaning[0]
    assert f"{OTHER} ends at 100, and the storage has no position" in story.meaning[0]
    running = service_report([report(Identity(1, "c", 0), State.READY, None, 0)], 0, is_running=True)
    stage.sources = stage.sources._replace(find_report=lambda: running)
    assert "does not run" not in " ".join(stage.tell("uow-9").meaning)


def test_a_large_output_is_read_in_its_newest_part_and_the_answer_says_so(stage: Stage) -> None:
    for number in range(1, 10):
        stage.notify("uow-1", number)
    size = (stage.out / "notifications.jsonl").stat().st_size
    left = OutputFiles(stage.out, SystemFiles(), max_bytes=size // 3).find_sent("uow-1", 2.0)
    assert [each.notification_id for each in left.found] in (["n8", "n9"], ["n7", "n8", "n9"])
    assert not left.is_complete
    assert "newest" in left.searched


def test_dead_letters_of_the_unit_are_found_with_their_reason(stage: Stage) -> None:
    stage.set_aside("uow-1", 1)
    stage.set_aside("uow-2", 2)
    found = stage.tell().dead_letters
    assert [(each.number, each.reason, each.error, each.state) for each in found.found] == [
        (f"{PARTITION}#1", "handler-failed", "no bank", "new")
    ]
    assert found.is_complete


def test_dead_letters_before_the_instant_are_not_told_and_the_answer_says_so(stage: Stage) -> None:
    stage.set_aside("uow-1", 1, at="2026-03-01T00:00Z")
    stage.set_aside("uow-1", 2)
    found = stage.tell(search=Search(letters_since=1_774_500_000_000)).dead_letters
    assert [each.number for each in found.found] == [f"{PARTITION}#2"]
    assert not found.is_complete
    assert "since 2026-03-26" in found.searched


def test_dead_letters_that_take_too_long_are_told_in_part(stage: Stage) -> None:
    for number in range(1, 4):
        stage.set_aside("uow-1", number)
    found = stage.tell(search=Search(max_seconds=0.0)).dead_letters
    assert len(found.found) == 1
    assert "there may be more" in found.searched


def test_brokers_that_do_not_answer_are_problems_and_no_errors(stage: Stage) -> None:
    def unavailable(*_: object) -> None:
        raise TransportUnavailable("brokers", "they do not answer")

    sources = stage.sources._replace(find_partitions=unavailable, open_dead_letters=unavailable)
    story = find_story(sources, nullcontext(stage.units.open_view()), "uow-1", Search(first_in=(PARTITION,)))
    assert story.looked_in == (str(PARTITION),)
    assert "do not answer" in story.problems[0]
    assert "do not answer" in story.dead_letters.searched
    assert not story.dead_letters.is_complete


def test_a_storage_that_does_not_answer_in_time_is_not_asked_for_the_other_partitions(stage: Stage) -> None:
    asked: list[Partition] = []

    class Away:
        def find_unit(self, partition: Partition, _: str) -> None:
            asked.append(partition)
            raise StorageUnavailable("redis does not answer")

    others = (PARTITION, Partition("T", 7), Partition("T", 8))
    story = find_story(stage.sources, nullcontext(Away()), "uow-1", Search(max_seconds=-1.0, first_in=others))
    assert asked == [PARTITION]
    assert story.looked_in == ()
    assert "redis does not answer" in story.problems[0]
    assert story.problems[1].startswith("T-7, T-8")
    assert "not tried" in story.problems[1]


def test_while_the_storage_does_not_answer_a_unit_that_was_here_is_not_taken_for_expired(stage: Stage) -> None:
    class Away:
        def find_unit(self, partition: Partition, _: str) -> None:
            raise StorageUnavailable("redis does not answer")

    stage.notify("uow-1", 1)
    story = find_story(stage.sources, nullcontext(Away()), "uow-1", Search(first_in=(PARTITION,)))
    assert story.is_known
    assert not any("expired" in each for each in story.meaning)
    printed = list(story_lines(story))
    assert "state: not known, because it could not be read" in printed
    assert not any("the storage has none" in each for each in printed)


def test_with_storage_none_one_of_the_oldest_waits_is_told_as_its_worker_reports_it(stage: Stage) -> None:
    wait = UnitWait("uow-1", str(PARTITION), "sequence:2", "deadline", "2026-03-28T23:33:55.941Z", "2026-03-28T23:34:16.941Z", 1)
    reported = msgspec.structs.replace(report(Identity(1, "c", 0), State.READY, None, 0), oldest_waits=(wait,))
    service = service_report([reported], 0, is_running=True)
    story = find_story(stage.sources._replace(find_report=lambda: service), nullcontext(None), "uow-1", Search())
    assert "It waits for sequence:2 since 2026-03-28T23:33:55.941Z" in story.meaning[0]


def test_with_storage_none_only_what_left_and_dead_letters_are_known(stage: Stage) -> None:
    stage.notify("uow-1", 1)
    story = find_story(stage.sources, nullcontext(None), "uow-1", Search())
    assert story.problems == (NOT_STORED,)
    assert story.is_known
    assert find_story(stage.sources, nullcontext(None), "uow-2", Search()).meaning != ()


def test_brokers_that_the_service_finds_unavailable_are_not_waited_for(stage: Stage) -> None:
    now = stage.sources.clock.now()
    away = report(Identity(1, "c", now), State.OUTPUT_UNAVAILABLE, "the brokers do not answer", now)
    stage.sources = stage.sources._replace(find_report=lambda: service_report([away], now, is_running=True))
    stage.set_aside("uow-1", 1)
    letters = stage.tell().dead_letters
    assert letters.found == ()
    assert not letters.is_complete
    assert letters.searched == "nothing, because the service says: output unavailable"


def test_what_came_is_known_by_the_positions_of_what_waits_was_sent_and_is_dead(stage: Stage) -> None:
    driven, envelope = stage.driven(), Envelopes()
    driven.arrive(envelope(1))
    driven.arrive(envelope(3))
    stage.units.keep(driven)
    stage.notify("uow-1", 1, **{"source-position": f"{PARTITION}@1", "group-id": "KEY"})
    stage.set_aside("uow-1", 2)
    asked: list[Origin] = []

    def find_written(origins: Sequence[Origin], seconds: float) -> dict[Origin, Instant]:
        del seconds
        asked.extend(origins)
        return {Origin(PARTITION, 1): instant_of("2026-03-28T23:33Z")}

    stage.sources = stage.sources._replace(find_written=find_written)
    story = stage.tell()
    assert story.group == "KEY"
    assert story.arrivals is not None
    assert [(each.position, each.at, each.became) for each in story.arrivals.found] == [
        (f"{PARTITION}@1", "2026-03-28T23:33:00.000Z", "was sent"),
        (f"{PARTITION}@2", None, "is stashed"),
        (f"{PARTITION}@7", None, "dead letter"),
    ]
    assert [each.offset for each in asked] == [1, 2, 7]
    assert "`archive-topics` makes a copy of the input that has all" in story.arrivals.searched


def test_an_archive_of_the_input_has_also_what_nothing_else_names(stage: Stage) -> None:
    at = instant_of("2026-03-28T23:33Z")

    def find_arrived(unit: str, seconds: float) -> ArrivedEarlier:
        del seconds
        return ArrivedEarlier({f"{PARTITION}@10": at, f"{PARTITION}@9": at + 1_000}, f"the archive for {unit}")

    stage.notify("uow-1", 1, **{"source-position": f"{PARTITION}@9"})
    stage.sources = stage.sources._replace(find_arrived=find_arrived)
    found = stage.tell().arrivals
    assert found is not None
    assert [(each.position, each.at, each.became) for each in found.found] == [
        (f"{PARTITION}@9", "2026-03-28T23:33:01.000Z", "was sent"),
        (f"{PARTITION}@10", "2026-03-28T23:33:00.000Z", "not known"),
    ]
    assert found.searched == "the archive for uow-1"


def test_the_ledger_tells_what_was_delivered_also_of_a_unit_without_a_state(stage: Stage, tmp_path: Path) -> None:
    with closing(LedgerStage(f"sqlite:///{tmp_path / 'ledger.db'}", receiver())) as delivered:
        delivered.take(item("uow-1", 1), item("uow-1", 2), item("uow-2", 1))
        delivered.finish(delivered.claim(wanted=1))
        story = find_story(stage.sources, nullcontext(stage.units.open_view()), "uow-1", Search(), delivered.ledger)
    assert story.deliveries is not None
    assert [(each.notification_id, each.receiver, each.status) for each in story.deliveries.found] == [
        ("uow-1-1", "r", "processed"),
        ("uow-1-2", "r", "ready"),
    ]
    assert story.deliveries.found[0].ended_at is not None


def test_without_a_ledger_it_is_said_what_would_know_the_deliveries(stage: Stage) -> None:
    found = stage.tell().deliveries
    assert found is not None
    assert found.searched == "not known here: no receiver is configured"
    stage.sources = stage.sources._replace(direct_receivers=("bank",))
    found = stage.tell().deliveries
    assert found is not None
    assert "bank get it straight from a topic" in found.searched
    assert "policy = ledger" in found.searched


@pytest.mark.parametrize("is_handled", [True, False])
def test_the_message_of_a_payment_is_known_from_its_data_where_messages_are_counted(
    stage: Stage, tmp_path: Path, is_handled: bool
) -> None:
    driven, body = stage.driven(), b'{"GrpHdr":{"MsgId":"MSG-1"}}'
    made = Envelopes()(1 if is_handled else 2, mds=("PAIN_001",))
    record = replace(made.record, value=made.record.content.replace(b'{"at":0}', body))
    driven.arrive(replace(made, record=record, mds_objects=(MdsObject("PAIN_001", body),)))
    stage.units.keep(driven)
    assert stage.tell().message_id is None
    with closing(GroupStage(tmp_path / "groups")) as groups:
        stage.sources = stage.sources._replace(groups=groups)
        assert stage.tell().message_id == "MSG-1"
