"""What a store on topics promises beside others: workers share its partitions, stand still, and have old or damaged copies."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from harness.steady import steady
from harness.waiting import wait_until

from guardian.headers import MEMBER
from guardian.ports import TransportUnavailable
from notification_service.aggregation.core import MAX_VALUE_BYTES, Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.runner import StoreRunner
from notification_service.supervision.system_clock import SystemClock, passed_ms
from resequencer.clock import SteadyClock
from tests.notification_service.aggregation.stores.stages import TopicStage, make_runner, run_until_read

if TYPE_CHECKING:  # Its client takes long to import, which the tests without a broker need not wait for.
    from notification_service.aggregation.kafka_store import Restoring
    from servers.kafka import KafkaServer
    from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow

STALLED = {"max.poll.interval.ms": 1_000}
"""A worker that does not poll for a second leaves its group, as a paused worker is removed."""

GROUPS = [f"g{number}" for number in range(12)]


@pytest.fixture
def stage(topics: KafkaStage, tmp_path: Path) -> TopicStage:
    return TopicStage(topics, tmp_path)


@pytest.fixture
def runner(stage: TopicStage) -> Iterator[Callable[..., StoreRunner]]:
    made: list[StoreRunner] = []

    def make(slot: int = 0, consumer: Any = None) -> StoreRunner:
        made.append(make_runner(stage, slot, lambda: stage.open_store(slot, consumer or {})))
        return made[-1]

    yield make
    for each in made:
        each.close()


@contextmanager
def running(*runners: StoreRunner) -> Iterator[None]:
    """Let each run in a thread of its own; at the end it leaves the group."""
    is_stopping = Event()
    with ThreadPoolExecutor(len(runners)) as threads:
        tasks = [threads.submit(each.run, is_stopping.is_set) for each in runners]
        try:
            yield
        finally:
            is_stopping.set()
    for each in tasks:
        each.result()


def send_member(stage: TopicStage, number: int, of: int) -> None:
    stage.send_all([(group, f"m{number}", {"number": number, "of": of}) for group in GROUPS])


def wait_until_read(stage: TopicStage) -> None:
    wait_until(lambda: stage.is_read(None), "all commands are applied", look_seconds=0.1)  # type: ignore[arg-type]


def topic_values(stage: TopicStage, partition: int | None = None) -> dict[str, bytes]:
    """Return the values by the keys of their records, as a fresh reader finds them."""
    found: dict[str, bytes] = {}
    for each in stage.topics._decided(stage.values_topic):
        if partition in (None, each.partition):
            found[each.key.decode()] = each.value
            if each.value is None:
                del found[each.key.decode()]
    return found


def copied_values(file: ValuesFile) -> dict[str, bytes]:
    values = dict(file.heads("", 100_000))
    return values | {f"{key}/{member}": body for key in values for member, body in file.member_values(key, "", 100_000)}


def assert_copies_are_whole(stage: TopicStage, one: StoreRunner) -> None:
    owned = one._store._owned  # type: ignore[union-attr]
    assert len(owned) == len(stage.topics.partitions)
    for partition, file in owned.items():
        assert copied_values(file) == topic_values(stage, partition.number)


def test_counts_are_exact_and_each_group_is_complete_once_while_workers_come_and_go(kafka: KafkaServer, tmp_path: Path) -> None:
    from tests.notification_service.connectors.kafka.stage import KafkaStage

    with closing(KafkaStage(kafka, partitions=3)) as topics:
        stage = TopicStage(topics, tmp_path)
        groups = [f"g{number}" for number in range(50)]

        def send(member: int) -> None:
            """Send a command to each group, and to every other one the same a second time, as a producer does in doubt."""
            commands = [(group, f"m{member}", {"number": member, "of": 4}) for group in groups]
            stage.send_all([*commands, *commands[::2]])

        one, two, three = (make_runner(stage, slot) for slot in range(3))
        with running(two):
            with running(one):
                send(1)
                wait_until(lambda: one._read_to and two._read_to, "both have partitions")
                send(2)
                with running(three):
                    wait_until(lambda: three._read_to, "the third one has a partition")
                    send(3)
            send(4)
            wait_until_read(stage)
        completions = stage.completions()
        assert Counter(each.key for each in completions) == dict.fromkeys(groups, 1)
        assert {(each.head["members"], each.head["sum"]) for each in completions} == {(4, 10)}
        values = topic_values(stage)
        assert [json.loads(values[group])["applied"] for group in groups] == [8, 4] * 25


@pytest.mark.parametrize("place", ["position", "restore", "ends", "publish", "keep"])
def test_a_worker_that_stood_still_neither_commits_nor_lacks_what_another_wrote(
    stage: TopicStage, runner: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`place` is what the worker was about to do, or in a takeover what it had just done."""
    monkeypatch.setattr("notification_service.aggregation.kafka_store._NOTE_SECONDS", 0)
    one, two = runner(0, STALLED), runner(1)
    store = one._opened()
    send_member(stage, 1, 4)
    if place not in ("position", "restore"):
        run_until_read(stage, one)
    send_member(stage, 2, 4)
    with running_from(monkeypatch, store, place, two, lambda: (wait_until_read(stage), send_member(stage, 3, 4))) as has_stood:
        wait_until(lambda: one.turn() or has_stood.is_set(), "the worker has stood still")
        wait_until_read(stage)
        one.turn()
    send_member(stage, 4, 4)
    run_until_read(stage, one)
    wait_until(lambda: one.turn() or len(one._read_to) == 2, "both partitions are back")
    assert_copies_are_whole(stage, one)
    found = {each.key: (each.head["sum"], each.head["applied"]) for each in stage.completions()}
    assert (len(stage.completions()), found) == (len(GROUPS), dict.fromkeys(GROUPS, (10, 4)))


@contextmanager
def running_from(
    monkeypatch: pytest.MonkeyPatch, store: Any, place: str, other: StoreRunner, meanwhile: Callable[[], object]
) -> Iterator[Event]:
    """Let the store stand still at the place, until the other one has its partitions and `meanwhile` is done.

    The other one then runs until the end of the context.
    """
    has_stood, is_over = Event(), Event()
    owner, name = {
        "position": (store._transport, "position"),
        "restore": (store._restoring, "restore"),
        "ends": (store._log, "ends"),
        "publish": (store._transport, "publish"),
        "keep": (store, "_keep"),
    }[place]
    call = getattr(owner, name)
    with ThreadPoolExecutor(1) as threads:

        def stand_still() -> None:
            if not has_stood.is_set():
                tasks.append(threads.submit(other.run, is_over.is_set))
                wait_until(lambda: len(other._read_to) == 2, "the other one has it all")
                meanwhile()
                wait_until(lambda: sum(other.report()[4:5]) >= len(GROUPS), "the other one has applied commands")
                has_stood.set()

        def hooked(*arguments: Any) -> Any:
            if place in ("position", "restore"):
                answer = call(*arguments)
                stand_still()
                return answer
            stand_still()
            return call(*arguments)

        tasks: list[Any] = []
        monkeypatch.setattr(owner, name, hooked)
        try:
            yield has_stood
        finally:
            is_over.set()
    for each in tasks:
        each.result()


def note_copies(stage: TopicStage, runner: Callable[..., StoreRunner]) -> None:
    """Apply the commands that are there, and let the first worker note that its copies have all values."""
    for _ in range(2):  # The second time it has only to note it.
        one = runner(0)
        run_until_read(stage, one)
        wait_until(lambda one=one: one.turn() or len(one._read_to) == 2, "both partitions")  # type: ignore[misc]
        one.close()


def test_only_what_a_copy_lacks_is_read_when_a_partition_comes_back(
    stage: TopicStage, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from notification_service.connectors.kafka.topic_reader import CommittedReader

    read, counted = CommittedReader.read, list[int]()

    def counting(self: CommittedReader, ends: Any) -> Iterator[Any]:
        for name, records in read(self, ends):
            counted.append(len(records))
            yield name, records

    monkeypatch.setattr(CommittedReader, "read", counting)
    for number in (1, 2, 3):
        send_member(stage, number, 9)
    note_copies(stage, runner)
    written = len(stage.topics._decided(stage.values_topic))
    two = runner(1)
    send_member(stage, 4, 9)
    run_until_read(stage, two)
    two.close()
    counted.clear()
    three = runner(0)
    wait_until(lambda: three.turn() or len(three._read_to) == 2, "both partitions")
    assert sum(counted) == len(stage.topics._decided(stage.values_topic)) - written == 2 * len(GROUPS)
    assert_copies_are_whole(stage, three)


@pytest.fixture
def restoring(stage: TopicStage) -> Iterator[Restoring]:
    from notification_service.aggregation.kafka_store import Restoring

    with closing(Restoring(stage.settings(), SteadyClock(SystemClock().now, passed_ms, trusted_ms=0))) as restoring:
        yield restoring


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ValuesFile]:
    with closing(ValuesFile(tmp_path / "copy.db", is_copy=True)) as file:
        yield file


def write_values(stage: TopicStage, *values: tuple[str, bytes | None], transactional_id: str | None = None) -> Any:
    """Write to the first partition. With an id the transaction stays open, and its producer is returned."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=stage.topics.bootstrap, transactional_id=transactional_id)
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin_transaction()
    for key, value in values:
        producer.send(stage.values_topic, value, key.encode(), partition=0)
    producer.flush()
    return producer if transactional_id is not None else producer.close()


def restore(restoring: Restoring, file: ValuesFile) -> dict[str, bytes]:
    def tried() -> bool:
        with suppress(TransportUnavailable):
            restoring.restore(0, file, 0.1)
            return True
        return False

    wait_until(tried, "the values are restored")
    return copied_values(file)


def note(file: ValuesFile, name: str, text: str) -> None:
    with file.writing() as writing:
        writing.note(name, text)


def test_a_look_at_the_values_does_not_fill_the_log(
    stage: TopicStage, restoring: Restoring, file: ValuesFile, caplog: pytest.LogCaptureFixture
) -> None:
    """The console's view restores each partition every two seconds."""
    write_values(stage, ("a", b"1"))
    with caplog.at_level("INFO", "resequencer"):
        assert restore(restoring, file) == {"a": b"1"}
    ours = [each for each in caplog.records if each.name.startswith("resequencer")]  # The client warns of a slow machine.
    assert not ours


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("read-at", str(time() - 2 * 86_400)),
        ("read-at", str(time() + 86_400)),
        ("read-at", "?"),
        ("next-offset", "10000"),
        ("next-offset", "-1"),
        ("topic-id", "another"),
    ],
    ids=["two-days-old", "of-tomorrow", "of-no-time", "beyond-the-end", "before-the-beginning", "of-another-topic"],
)
def test_a_copy_that_is_in_doubt_is_read_again(
    stage: TopicStage, restoring: Restoring, file: ValuesFile, name: str, text: str
) -> None:
    write_values(stage, ("a", b"1"), ("a/m", b"2"), ("b", b"3"))
    assert restore(restoring, file) == {"a": b"1", "a/m": b"2", "b": b"3"}
    with file.writing() as writing:  # The topic has forgotten that this was deleted.
        writing.put({Slot("deleted"): Stored(b"9")})
        writing.note(name, text)
    assert restore(restoring, file) == topic_values(stage) == {"a": b"1", "a/m": b"2", "b": b"3"}


def test_a_clock_that_is_wrong_for_one_look_makes_no_copy_young(stage: TopicStage, file: ValuesFile) -> None:
    """The copy is two days old, and the topic has forgotten what was deleted since. At that moment the clock is set back."""
    from notification_service.aggregation.kafka_store import Restoring

    passed_ms, ahead_ms = 0, 1_774_740_835_941
    clock = SteadyClock(lambda: ahead_ms + passed_ms, lambda: passed_ms)
    with closing(Restoring(stage.settings(), clock)) as restoring:
        write_values(stage, ("a", b"1"))
        assert restore(restoring, file) == {"a": b"1"}
        with file.writing() as writing:  # The topic has forgotten that this was deleted.
            writing.put({Slot("gone"): Stored(b"0")})
        for _ in range(2):
            passed_ms += 86_400_000
            clock.now()
        ahead_ms -= 2 * 86_400_000
        assert restore(restoring, file) == {"a": b"1"}


def test_a_copy_that_is_in_no_doubt_is_kept(stage: TopicStage, restoring: Restoring, file: ValuesFile) -> None:
    write_values(stage, ("a", b"1"))
    restore(restoring, file)
    with file.writing() as writing:
        writing.put({Slot("kept"): Stored(b"9")})
    write_values(stage, ("a", None), ("b", b"2"))
    assert restore(restoring, file) == {"kept": b"9", "b": b"2"}


def test_the_copy_of_a_topic_that_was_recreated_is_read_again(stage: TopicStage, restoring: Restoring, file: ValuesFile) -> None:
    from kafka.errors import KafkaError

    write_values(stage, ("a", b"1"), ("b", b"3"))
    restore(restoring, file)
    with closing(stage.topics.kafka.admin()) as admin:
        admin.delete_topics([stage.values_topic])

    def made() -> bool:
        with suppress(KafkaError):
            stage.topics.kafka.create_topics(stage.values_topic, partitions=2, config={"cleanup.policy": "compact"})
            return True
        return False

    wait_until(made, "the topic is there again")
    write_values(stage, ("b", b"4"), ("c", b"5"), ("c", b"6"))
    assert restore(restoring, file) == {"b": b"4", "c": b"6"}


def damage_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = b"\xff" * len(content[4096 * 2 :])
    path.write_bytes(content)


def damage_value(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b"right") >= 1
    path.write_bytes(content.replace(b"right", b"wrong"))


def damage_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE note")


def damage_format(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def damage_all(path: Path) -> None:
    path.write_bytes(b"no database" * 1_000)


@pytest.mark.parametrize("damage", [damage_pages, damage_value, damage_schema, damage_format, damage_all])
def test_a_damaged_copy_is_read_again(
    stage: TopicStage, restoring: Restoring, file: ValuesFile, damage: Callable[[Path], None]
) -> None:
    values = {f"g{number}/m": b"right" * 100 for number in range(100)} | {f"g{number}": b"0" for number in range(100)}
    write_values(stage, *values.items())
    assert restore(restoring, file) == values
    file.close()
    damage(file.path)

    def read() -> bool:
        with suppress(TransportUnavailable):
            return restore(restoring, file) == values
        return False

    wait_until(read, "the values are right again")


def test_a_value_whose_bytes_have_changed_is_not_applied_to_but_read_again(stage: TopicStage, runner: Any) -> None:
    send_member(stage, 1, 2)
    note_copies(stage, runner)
    wrong = json.dumps({"members": 1, "sum": 99, "applied": 1}).encode()
    for path in stage.directory.glob("worker-0/*.db"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE value SET body = ? WHERE member = ''", [wrong])
            connection.commit()
    two = runner()
    send_member(stage, 2, 2)
    run_until_read(stage, two)
    assert {each.key: each.head["sum"] for each in stage.completions()} == dict.fromkeys(GROUPS, 3)


@pytest.mark.parametrize("step", ["restore", "keep"])
def test_a_full_disk_makes_the_store_stand_still_with_the_reason_and_loses_nothing(
    stage: TopicStage, runner: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = runner()
    member = {f"g{number}": "m" * 200 for number in range(200)}
    stage.send_all([(key, f"{name}1", {"number": 1, "of": 2}) for key, name in member.items()])
    run_until_read(stage, one)
    prepare = ValuesFile._prepare

    def prepare_small(self: ValuesFile, connection: sqlite3.Connection) -> None:
        prepare(self, connection)
        connection.execute("PRAGMA max_page_count = 12")

    monkeypatch.setattr(ValuesFile, "_prepare", prepare_small)
    if step == "restore":
        one.close()
        one = runner(1)  # It has no copies yet.
    else:
        for each in one._store._owned.values():
            each._opened().execute("PRAGMA max_page_count = 12")
    stage.send_all([(key, f"{name}2", {"number": 2, "of": 2}) for key, name in member.items()])
    wait_until(lambda: one.turn() or "full" in str(one.report().problem), "the store reports why it stands still")
    wait_until(lambda: one.turn() or any("full" in each for each in one.report().notes), "the partitions report it, too")
    monkeypatch.undo()
    run_until_read(stage, one)
    wait_until(lambda: one.turn() or not one.report().problem, "there is no problem any more")
    found = [(each.head["sum"], each.head["applied"]) for each in stage.completions()]
    assert found == [(3, 2)] * 200
    assert_copies_are_whole(stage, one)


def test_what_a_killed_predecessor_left_uncommitted_is_no_value(stage: TopicStage, runner: Any) -> None:
    send_member(stage, 1, 2)
    one = runner()
    run_until_read(stage, one)
    one.close()
    killed = write_values(
        stage, ("g0", b"wrong"), ("deleted", b"wrong"), ("g1", None), transactional_id=stage.settings().transactional_id
    )
    two = runner()
    send_member(stage, 2, 2)
    run_until_read(stage, two)
    wait_until(lambda: two.turn() or len(two._read_to) == 2, "both partitions")
    assert_copies_are_whole(stage, two)
    assert [each.head["sum"] for each in stage.completions()] == [3] * len(GROUPS)
    with suppress(Exception):
        killed.close(timeout=0)


def test_values_of_a_transaction_that_is_still_open_are_waited_for(
    stage: TopicStage, restoring: Restoring, file: ValuesFile
) -> None:
    write_values(stage, ("a", b"1"))
    with closing(write_values(stage, ("a", b"2"), ("b", b"3"), transactional_id="predecessor")) as predecessor:
        write_values(stage, ("c", b"4"))
        with pytest.raises(TransportUnavailable, match="a transaction is still open"):
            restoring.restore(0, file, 0.1)
        predecessor.commit_transaction()
    assert restore(restoring, file) == {"a": b"2", "b": b"3", "c": b"4"}


def test_the_other_partitions_go_on_while_one_waits_for_an_open_transaction(stage: TopicStage, runner: Any) -> None:
    stage.topics.set_position(stage.topics.partitions[0], 0)
    with closing(write_values(stage, ("x", b"{}"), transactional_id="another")) as predecessor:
        one = runner()
        send_member(stage, 1, 1)
        wait_until(lambda: one.turn() or stage.completions(), "the other partition continues")
        assert [each.number for each in one._read_to] == [1]
        (note,) = (each for each in one.report().notes if "is not taken over yet" in each)
        assert "a transaction is still open" in note
        assert one.report().problem is None
        predecessor.commit_transaction()
        run_until_read(stage, one)
    assert Counter(each.key for each in stage.completions()) == dict.fromkeys(GROUPS, 1)
    assert_copies_are_whole(stage, one)


def test_a_long_reading_is_interrupted_and_goes_on_where_it_was(
    stage: TopicStage, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notification_service.aggregation.kafka_store._READ_SECONDS", 0.0)
    monkeypatch.setattr("notification_service.connectors.kafka.topic_reader._AT_ONCE", 100)
    write_values(stage, *((f"g{number}/m", b"1") for number in range(400)), *((f"g{number}", b"0") for number in range(400)))
    for each in stage.topics.partitions:
        stage.topics.set_position(each, 0)
    one = runner()
    offsets: list[str] = []

    def is_whole() -> bool:
        one.turn()
        offsets.extend(each.split("read: ")[1] for each in one.report().notes if "are being read" in each)
        return len(one._read_to) == 2

    wait_until(is_whole, "both partitions")
    assert [*dict.fromkeys(offsets)] == [f"offset {at} of 800" for at in range(100, 800, 100)]
    assert_copies_are_whole(stage, one)


def test_odd_keys_and_members_come_back_from_the_topic_as_they_were(stage: TopicStage, runner: Any) -> None:
    key, members = "ключ ✓ e\u0301 😀", ("é", "e\u0301", "a/b//", " ", "'; --", "ÿ")
    one = runner()
    stage.send_all([(key, member, {"number": 1, "of": len(members)}) for member in members])
    run_until_read(stage, one)
    one.close()
    two = runner(1)  # It has no copies, and reads all from the topic.
    stage.send("other", "m", number=1, of=1)
    run_until_read(stage, two)
    wait_until(lambda: two.turn() or len(two._read_to) == 2, "both partitions")
    assert stage.values(two, key).keys() == {"", *members}
    assert [each.head["members"] for each in stage.completions() if each.key == key] == [len(members)]


def test_members_that_are_not_text_are_dead_letters_and_not_one_and_the_same(stage: TopicStage, runner: Any) -> None:
    one = runner()
    for member in (b"\xff", b"\xfe"):
        stage.topics.send(b'{"number": 1, "of": 2}', key=b"a", headers=((MEMBER, member),))
    stage.send("b", "m", number=1, of=1)
    run_until_read(stage, one)
    wait_until(lambda: one.turn() or len(stage.dead_letters()) == 2, "both are dead letters")
    assert [each.key for each in stage.completions()] == ["b"]


class Blown:
    """Makes a head of as many bytes as the command names."""

    def apply(self, head: bytes | None, member: bytes | None, command: Any, now: int) -> Any:
        from notification_service.aggregation.core import Change

        del head, member, now
        return Change(b"x" * int(command.body))

    def dated_back(self, head: bytes, now: int) -> None:
        del head, now

    def on_due(self, key: str, head: bytes, now: int, counts_from: int | None) -> Any:
        del counts_from
        raise AssertionError

    def on_value(self, *values: object) -> tuple[()]:
        del values
        return ()


def test_values_of_the_greatest_size_are_kept_and_larger_ones_are_dead_letters(stage: TopicStage) -> None:
    from tests.notification_service.connectors.kafka.stage import KafkaStage

    assert isinstance(stage.topics, KafkaStage)
    for number in range(20):
        stage.topics.send(str(MAX_VALUE_BYTES).encode(), key=f"g{number}".encode())
    stage.topics.send(str(MAX_VALUE_BYTES + 1).encode(), key=b"larger")
    stage._sent[0] = 21
    with closing(StoreRunner("blown", Blown(), stage.open_store, steady(stage.clock), lambda ms: None)) as one:
        run_until_read(stage, one)
    assert [each.key for each in stage.dead_letters()] == ["larger"]
    assert {key: len(value) for key, value in topic_values(stage).items()} == {f"g{n}": MAX_VALUE_BYTES for n in range(20)}


def problem_of(one: StoreRunner) -> str:
    return str(wait_until(lambda: one.turn() or one.report().problem, "the store stands still"))


def test_a_topic_of_values_with_too_few_partitions_is_refused_with_the_remedy(topics: KafkaStage, tmp_path: Path) -> None:
    stage = TopicStage(topics, tmp_path, values_partitions=1)
    stage.send("a", "m", number=1, of=1)
    with closing(make_runner(stage)) as one:
        problem = f"topic {stage.values_topic}: it has 1 partitions, but the topic of its commands has 2. Give it 2"
        assert problem in problem_of(one)
        with closing(topics.kafka.admin()) as admin:
            admin.create_partitions({stage.values_topic: 2})
        run_until_read(stage, one)
    assert [each.key for each in stage.completions()] == ["a"]


def test_a_topic_of_values_that_loses_them_is_noted(topics: KafkaStage, tmp_path: Path) -> None:
    stage = TopicStage(topics, tmp_path, policy="delete")
    with closing(make_runner(stage)) as one:
        wait_until(lambda: one.turn() or one._read_to, "a partition")
        (note,) = one.report().notes
        assert f"topic {stage.values_topic} has cleanup.policy = delete" in note


def test_values_without_a_position_are_refused_for_their_commands_would_be_applied_again(stage: TopicStage, runner: Any) -> None:
    one = runner()
    send_member(stage, 1, 2)
    run_until_read(stage, one)
    one.close()
    stage.topics.group = f"{stage.topics.group}-other"
    two = runner()
    assert "the group has no position, but there are values in topic" in problem_of(two)
    assert stage.completions() == []
    for number, end in stage._sent.items():
        stage.topics.set_position(stage.topics.partitions[number], end)
    send_member(stage, 2, 2)
    run_until_read(stage, two)
    assert [(each.head["sum"], each.head["applied"]) for each in stage.completions()] == [(3, 2)] * len(GROUPS)


def test_the_other_partitions_go_on_while_one_is_refused(stage: TopicStage, runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_service.aggregation.runner._SET_ASIDE_SECONDS", 1)
    one = runner()
    send_member(stage, 1, 2)
    run_until_read(stage, one)
    one.close()
    stage.topics.group = f"{stage.topics.group}-other"
    refused, good = stage.topics.partitions
    ends = dict(stage._sent)
    stage.topics.set_position(good, ends[good.number])
    two = runner()
    send_member(stage, 2, 2)
    wait_until(lambda: two.turn() or stage.completions(), "the other partition continues")
    assert list(two._read_to) == [good]
    assert (two.report().problem, two.report().untaken) == (None, 1)
    assert any(f"{refused} is not taken over yet: {refused}: the group has no position" in each for each in two.report().notes)
    stage.topics.set_position(refused, ends[refused.number])
    run_until_read(stage, two)
    assert two.report().untaken == 0
    assert [(each.head["sum"], each.head["applied"]) for each in stage.completions()] == [(3, 2)] * len(GROUPS)


def test_a_topic_of_commands_that_was_created_again_is_refused(stage: TopicStage, runner: Any) -> None:
    from kafka.errors import KafkaError

    one = runner()
    send_member(stage, 1, 2)
    run_until_read(stage, one)
    one.close()
    with closing(stage.topics.kafka.admin()) as admin:
        admin.delete_topics([stage.topics.topics.input])

    def made() -> bool:
        with suppress(KafkaError):
            stage.topics.kafka.create_topics(stage.topics.topics.input, partitions=2)
            return True
        return False

    wait_until(made, "the topic is there again")
    two = runner()
    answer = wait_until(lambda: two.turn() or two.report().problem or two._read_to, "an answer")
    # The brokers delete the group's positions with the topic; else the position names the topic that it belongs to.
    assert any(each in str(answer) for each in ("was deleted and created again", "the group has no position"))
