"""Dead letters of a topic: read, requeued exactly once, discarded; on a real broker."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import count

import pytest
from harness.waiting import DEADLINE_SECONDS
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from guardian.ports import Channel, TransportRefused, TransportUnavailable
from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters import port as requeue_batches
from notification_service.connectors.dead_letters.actions import Action, Discarded, Edit, Edited, Requeued, StoredDeadLetter
from notification_service.connectors.dead_letters.port import (
    AskedFor,
    DeadLettersInUse,
    Outcome,
    Signature,
    last_actions,
    last_states,
)
from notification_service.connectors.kafka import requeue as topic_requeue
from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
from notification_service.connectors.kafka.producer import TransactionalProducer
from notification_service.connectors.kafka.topic_reader import TopicExport
from resequencer.clock import instant_of
from resequencer.record import Headers
from tests.notification_service.connectors.kafka.stage import KafkaStage, read_to_end

pytestmark = pytest.mark.slow

ENVELOPE = b'{"processingContext": {"unitOfWorkId": "uow-b"}, "sequence": 2}'
AT = "2026-03-28T23:33:55.941Z"
EVERYTHING = AskedFor()


class PausedPartitions:
    """Writes dead letters as a worker does, and opens stores on them."""

    def __init__(self, stage: KafkaStage) -> None:
        self.stage = stage
        self.topic = stage.topics.dead_letters
        self._offsets = {0: count(), 1: count()}

    def put(
        self, *values: bytes, headers: Headers = (("schema-version", b"2"),), partition: int = 0, of: int = 1, **fields: str
    ) -> list[str]:
        ours = {
            "reason": "handler-failed",
            "error": "no",
            "source-position": f"{self.stage.topics.input}-{of}@0",
            "at": AT,
            **fields,
        }
        added = [(f"dead-letter-{name}", text.encode()) for name, text in ours.items()]
        with closing(KafkaProducer(bootstrap_servers=self.stage.bootstrap, acks="all")) as producer:
            for value in values:
                producer.send(self.topic, value, b"uow-a", [*headers, *added], partition)
            producer.flush()
        return [f"{self.topic}-{partition}#{next(self._offsets[partition])}" for _ in values]

    def store(self, asked_for: AskedFor = EVERYTHING) -> KafkaDeadLetterStore:
        return KafkaDeadLetterStore(self.stage.settings(), asked_for, lambda: Signature("me", AT))

    def requeue(self, *numbers: str) -> list[Outcome]:
        with closing(self.store(AskedFor(numbers=numbers))) as store:
            assert list(store.begin()) == []
            return list(store.requeue(each for each in store.letters() if each.number in numbers))

    def edit(self, edit: Edit, *numbers: str) -> list[Outcome]:
        with closing(self.store(AskedFor(numbers=numbers))) as store:
            list(store.begin())
            return list(store.requeue(each.edited(edit) for each in store.letters() if each.number in numbers))

    def states(self) -> dict[str, str]:
        with closing(self.store()) as store:
            last = {number: action.state for (number, _), action in last_actions(store).items()}
            return {each.number: last.get(each.number, "new") for each in store.letters()}

    def input(self) -> list[tuple[int, bytes, bytes, dict[str, bytes]]]:
        with closing(self.stage.reader()) as reader:
            found = read_to_end(reader, self.stage.topics.input)
        return [(each.partition, each.key, each.value, dict(each.headers)) for each in found]


@pytest.fixture
def aside(stage: KafkaStage) -> PausedPartitions:
    return PausedPartitions(stage)


def test_a_letter_is_known_by_its_place_and_read_as_it_left(aside: PausedPartitions) -> None:
    (number,) = aside.put(ENVELOPE)
    with closing(aside.store()) as store:
        (letter,) = store.letters()
        assert list(store.actions()) == []
        assert store.where == f"topic {aside.topic}"
    assert (letter.number, letter.unit, letter.letter.reason) == (number, "uow-b", "handler-failed")
    assert letter.letter.record.headers == (("schema-version", b"2"),)


def test_a_requeued_one_stands_in_its_partition_once_as_it_came_and_is_told_of(aside: PausedPartitions) -> None:
    first, second = aside.put(ENVELOPE, b"not json \xff")
    topic = aside.stage.topics.input
    assert aside.requeue(first) == [Outcome(first, f"{topic}-1@0")]
    assert aside.input() == [(1, b"uow-a", ENVELOPE, {"schema-version": b"2", "requeued-from": first.encode()})]
    assert aside.states() == {first: "requeued", second: "new"}
    with closing(aside.store(AskedFor(numbers=(first,)))) as store:
        assert list(store.actions()) == [Requeued(number=first, letter="", by="me", at=AT, position=f"{topic}-1@0")]


def test_a_discarded_one_says_why_and_nothing_is_sent(aside: PausedPartitions) -> None:
    number, other = aside.put(b"1", b"2")
    with closing(aside.store()) as store:
        list(store.begin())
        store.discard([(number, "")], "settled by phone")
    assert aside.states() == {number: "discarded", other: "new"}
    with closing(aside.store()) as store:
        assert list(store.actions()) == [Discarded(number=number, letter="", by="me", at=AT, because="settled by phone")]
    assert aside.input() == []


def test_many_go_in_portions_each_in_a_transaction_of_its_own(aside: PausedPartitions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue_batches, "MAX_AT_ONCE", 3)
    numbers = aside.put(*(b"%d" % each for each in range(8)))
    assert [each.number for each in aside.requeue(*numbers)] == numbers
    assert [value for _, _, value, _ in aside.input()] == [b"%d" % each for each in range(8)]


def test_who_dies_before_the_commit_did_nothing_and_who_comes_next_does_it_once(
    aside: PausedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = aside.put(b"1", b"2")
    dying = aside.store()
    list(dying.begin())
    _die_before_the_commit(dying, monkeypatch)
    with pytest.raises(Exit):
        list(dying.requeue(dying.letters()))
    with pytest.raises(AssertionError, match="not usable after a failure"):
        list(dying.requeue(dying.letters()))
    assert aside.states() == dict.fromkeys(numbers, "new")
    assert len(aside.requeue(*numbers)) == 2
    assert [value for _, _, value, _ in aside.input()] == [b"1", b"2"]
    assert aside.states() == dict.fromkeys(numbers, "requeued")
    dying.close()


class Exit(BaseException):
    pass


def _die_before_the_commit(store: KafkaDeadLetterStore, monkeypatch: pytest.MonkeyPatch) -> None:
    requeue = store._requeue
    assert requeue is not None
    send = requeue._send_notes

    def die(producer: TransactionalProducer, actions: Sequence[Action]) -> None:
        send(producer, actions)
        raise Exit

    monkeypatch.setattr(requeue, "_send_notes", die)


def test_of_two_people_at_once_the_one_who_came_later_orders_and_the_other_is_refused(aside: PausedPartitions) -> None:
    number, *_ = aside.put(b"1", b"2")
    with closing(aside.store()) as earlier, closing(aside.store()) as later:
        list(earlier.begin())
        chosen = [each for each in earlier.letters() if each.number == number]
        list(later.begin())
        with pytest.raises(DeadLettersInUse):
            list(earlier.requeue(chosen))
        assert len(list(later.requeue(chosen))) == 1
        with closing(aside.store()) as latest:
            list(latest.begin())
            with pytest.raises(DeadLettersInUse):
                later.discard([(number, "")], "no")
    assert len(aside.input()) == 1
    assert aside.states()[number] == "requeued"


def test_an_outcome_whose_answer_was_lost_is_found_out_by_the_next_order(
    aside: PausedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = aside.put(b"1")
    with closing(aside.store()) as store:
        list(store.begin())
        _lose_the_answer_to_the_commit(store, monkeypatch)
        with pytest.raises(TransportUnavailable, match="repeat the command; it finds out, and does what remains, once"):
            list(store.requeue(store.letters()))
    with closing(aside.store()) as store:
        list(store.begin())
        assert [each.state for each in store.actions()] == ["requeued"]
    assert aside.states() == {number: "requeued"}
    assert len(aside.input()) == 1


def _lose_the_answer_to_the_commit(store: KafkaDeadLetterStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit takes effect, but its answer is lost."""
    requeue = store._requeue
    assert requeue is not None
    assert requeue._producer is not None
    end = requeue._producer.end

    def end_without_an_answer() -> None:
        end()
        raise topic_requeue.errors.KafkaTimeoutError("no answer")

    monkeypatch.setattr(requeue._producer, "end", end_without_an_answer)


def test_orders_wait_until_what_a_worker_has_open_is_decided(aside: PausedPartitions) -> None:
    (number,) = aside.put(b"1")
    with closing(KafkaProducer(bootstrap_servers=aside.stage.bootstrap, transactional_id=aside.stage.group)) as worker:
        worker.init_transactions()
        worker.begin_transaction()
        worker.send(aside.topic, b"open", partition=0).get(timeout=DEADLINE_SECONDS)
        with closing(aside.store()) as store:
            assert [each.number for each in store.letters()] == [number]
            assert store._ends[TopicPartition(aside.topic, 0)] == 1
            worker.abort_transaction()
            list(store.begin())
            assert store._ends[TopicPartition(aside.topic, 0)] > 1


def test_an_edited_one_stands_in_its_partition_once_with_its_new_value_and_is_told_of(aside: PausedPartitions) -> None:
    headers = (("schema-version", b"2"), ("traceparent", b"\xff"))
    first, second = aside.put(b"bad", b"other", headers=headers)
    topic = aside.stage.topics.input
    assert aside.edit(Edit(ENVELOPE, "a typing error"), first) == [Outcome(first, f"{topic}-1@0", done="edited")]
    assert aside.input() == [(1, b"uow-a", ENVELOPE, {**dict(headers), "requeued-from": first.encode()})]
    assert aside.states() == {first: "edited", second: "new"}
    with closing(aside.store(AskedFor(numbers=(first,)))) as store:
        assert next(store.letters()).letter.record.value == b"bad"
        assert list(store.actions()) == [
            Edited(
                number=first,
                letter="",
                by="me",
                at=AT,
                position=f"{topic}-1@0",
                because="a typing error",
                original_sha256=sha256(b"bad").hexdigest(),
                edited_sha256=sha256(ENVELOPE).hexdigest(),
            )
        ]


def test_an_editor_who_dies_before_the_commit_did_nothing_and_the_next_edit_is_the_only_one(
    aside: PausedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = aside.put(b"bad")
    with closing(aside.store()) as dying:
        list(dying.begin())
        _die_before_the_commit(dying, monkeypatch)
        with pytest.raises(Exit):
            list(dying.requeue(_edited(dying, b"first")))
        assert aside.states() == {number: "new"}
        assert [each.done for each in aside.edit(Edit(b"second", "why"), number)] == ["edited"]
    assert [value for _, _, value, _ in aside.input()] == [b"second"]


def test_an_edit_whose_outcome_was_not_answered_is_found_out_and_one_that_was_fenced_is_refused(
    aside: PausedPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = aside.put(b"bad")
    with closing(aside.store()) as earlier, closing(aside.store()) as later:
        list(earlier.begin())
        list(later.begin())
        with pytest.raises(DeadLettersInUse):
            list(earlier.requeue(_edited(earlier, b"fenced")))
        assert aside.states() == {number: "new"}
    with closing(aside.store()) as store:
        list(store.begin())
        _lose_the_answer_to_the_commit(store, monkeypatch)
        with pytest.raises(TransportUnavailable, match="repeat the command"):
            list(store.requeue(_edited(store, b"good")))
    assert aside.states() == {number: "edited"}
    assert [value for _, _, value, _ in aside.input()] == [b"good"]


def _edited(store: KafkaDeadLetterStore, value: bytes) -> list[StoredDeadLetter]:
    return [each.edited(Edit(value, "why")) for each in store.letters()]


def test_an_edited_value_that_the_service_or_the_topic_does_not_take_is_refused_with_the_sizes(stage: KafkaStage) -> None:
    aside = PausedPartitions(stage)
    (number,) = aside.put(b"bad")
    with stage.kafka.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.input, {"max.message.bytes": "2000"})])
    most = stage.settings().max_value_bytes
    (beyond,) = aside.edit(Edit(b"x" * (most + 1), "why"), number)
    assert f"the edited value has {most + 1} bytes, max-record-bytes is {most}" in str(beyond.problem)
    (large,) = aside.edit(Edit(b"x" * 5_000, "why"), number)
    assert re.search("it takes 5[0-9]{3} bytes, the limit is 2000", str(large.problem)), large
    assert aside.states() == {number: "new"}
    assert aside.edit(Edit(b"x" * 500, "why"), number)[0].position is not None
    assert [value for _, _, value, _ in aside.input()] == [b"x" * 500]


def test_what_does_not_fit_or_came_from_elsewhere_is_refused_and_the_others_go(stage: KafkaStage) -> None:
    aside = PausedPartitions(stage)
    good, large, of_no_partition = *aside.put(b"1", b"x" * 5_000), *aside.put(b"2", of=7)
    with stage.kafka.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.input, {"max.message.bytes": "2000"})])
    (elsewhere,) = aside.put(b"3", **{"source-position": "OTHER-0@1"})
    position = f"{stage.topics.input}-1@0".encode()
    (notification,) = aside.put(b"4", headers=(("source-position", position),), reason="too-large")
    upstream = (("notification-id", b"N"), ("source-position", b"UPSTREAM-1@0"))
    (of_an_upstream_service,) = aside.put(b"5", headers=upstream, reason="too-large")
    problems = {each.number: each.problem for each in aside.requeue(good, large, of_no_partition, elsewhere, notification)}
    assert problems[good] is None
    assert "Raise the topic's max.message.bytes" in str(problems[large])
    assert problems[of_no_partition] == f"it came from partition 7, but {stage.topics.input} has only 2"
    assert problems[elsewhere] == f"it came from topic OTHER, but the service reads {stage.topics.input} now"
    assert "it is a notification that its topic refused" in str(problems[notification])
    assert [each.problem for each in aside.requeue(of_an_upstream_service)] == [None]
    assert [value for _, _, value, _ in aside.input()] == [b"1", b"5"]


def test_a_note_that_the_topic_of_the_dead_letters_does_not_take_names_that_topic_and_nothing_is_done(
    aside: PausedPartitions,
) -> None:
    (number,) = aside.put(b"1")
    with aside.stage.kafka.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, aside.topic, {"max.message.bytes": "2000"})])
    with closing(aside.store()) as store:
        list(store.begin())
        with pytest.raises(
            TransportRefused, match=rf"topic {aside.topic}: it does not accept a note of 5\d{{3}} bytes"
        ) as raised:
            store.discard([(number, "")], "x" * 5_000)
    assert "and nothing was done. Raise its max.message.bytes" in str(raised.value)
    assert aside.states() == {number: "new"}


def test_only_what_was_asked_for_is_read(aside: PausedPartitions) -> None:
    first, second, third = aside.put(b"1", b"2", b"3")
    (other,) = aside.put(b"4", partition=1)

    def numbers(asked_for: AskedFor) -> list[str]:
        with closing(aside.store(asked_for)) as store:
            return [each.number for each in store.letters()]

    assert numbers(AskedFor(numbers=(second,))) == [second, third]
    assert numbers(AskedFor(numbers=(other,))) == [other]
    assert numbers(AskedFor(numbers=("nonsense", f"{aside.topic}-0#x", f"{aside.topic}-0#99999"))) == []
    assert sorted(numbers(AskedFor(since=1))) == sorted([first, second, third, other])
    assert numbers(AskedFor(since=2**42)) == []


def test_what_is_no_dead_letter_is_passed_over_and_a_verifying_reader_sees_no_notes(aside: PausedPartitions, tmp_path) -> None:
    (number,) = aside.put(b"1")
    with closing(KafkaProducer(bootstrap_servers=aside.stage.bootstrap)) as producer:
        producer.send(aside.topic, b"by hand", partition=0)
        producer.send(aside.topic, None, b"k", headers=[("dead-letter-action", b"x"), ("and", b"more")], partition=0)
        producer.flush()
    aside.requeue(number)
    assert aside.states() == {number: "requeued"}
    with closing(TopicExport(aside.stage.settings(), tmp_path)) as export:
        export.catch_up()
    assert len((tmp_path / f"{Channel.DEAD_LETTERS}.jsonl").read_bytes().splitlines()) == 3


def test_a_proposed_edit_is_noted_with_its_value_and_sent_when_another_person_approves_it(aside: PausedPartitions) -> None:
    (number,) = aside.put(b"bad")
    edit = Edit(ENVELOPE, "a typing error")

    def carry_out(decide: Callable[[KafkaDeadLetterStore], Iterator[Outcome]]) -> list[str | None]:
        with closing(aside.store(AskedFor(numbers=(number,)))) as store:
            return [each.problem or each.done for each in decide(store)]

    def approve(by: str) -> list[str | None]:
        approval = decisions.Approval(by, edit.sha256, instant_of(AT))
        return carry_out(lambda store: decisions.approve_edit(store, number, approval, lambda _: None))

    def propose() -> list[str | None]:
        return carry_out(lambda store: decisions.propose_edit(store, number, edit, lambda _: None))

    assert propose() == ["edit-proposed"]
    assert carry_out(lambda store: decisions.reject_edit(store, number, "no")) == ["edit-rejected"]
    assert approve("ben") == ["it has no such proposal any more: look at it again"]
    assert propose() == ["edit-proposed"]
    with closing(aside.store()) as store:
        assert last_states(store, instant_of(AT)) == {(number, ""): "edit-proposed"}
    assert approve("ME") == ["another person than the one who proposed it has to approve it"]
    assert aside.input() == []
    assert approve("ben") == ["edited"]
    assert [value for _, _, value, _ in aside.input()] == [ENVELOPE]
    assert aside.states() == {number: "edited"}
    with closing(aside.store()) as store:
        actions = list(store.actions())
    assert [each.state for each in actions] == ["edit-proposed", "edit-rejected", "edit-proposed", "edited"]
    assert [each.proposed_by for each in actions if isinstance(each, Edited)] == ["me"]
