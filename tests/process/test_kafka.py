"""The service on Kafka as an operator runs it: checked, started, fed, killed, verified, stopped."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import KAFKA_CLIENTS, NOTIFICATION, kafka_overrides
from harness.waiting import DEADLINE_SECONDS
from kafka import KafkaProducer

from notification_service.status.report import StatusReport
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.raw_batches import batch, corrupt, record, segment, send_batch

pytestmark = pytest.mark.slow

Naming = Callable[[str], str]


@pytest.fixture
def on_kafka(kafka: KafkaServer, fresh_name: Naming) -> tuple[str, ...]:
    """Overrides for topics and a group of the test's own."""
    topics = [fresh_name(each) for each in ("in", "out", "dead")]
    kafka.create_topics(*topics, partitions=4)
    return kafka_overrides(kafka.bootstrap, *topics, fresh_name("group"))


def test_every_promise_holds_though_the_worker_is_killed(new_daemon: Callable[..., Daemon], on_kafka: tuple[str, ...]) -> None:
    daemon = new_daemon(*on_kafka)
    verb = daemon.service.verb
    assert verb("check", "--connect").returncode == 0
    daemon.start()
    for seed in range(3):
        simulated = verb("simulate", "--units", "300", "--garbage", "2%", "--seed", str(seed), "--late", "0", "--losses", "0")
        assert simulated.returncode == 0, simulated.stderr
        worker = daemon.worker
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        daemon.wait_for_another_worker(worker)
    followed = verb("verify", "--follow", "--give-up-after", "60s")
    assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
    assert verb("stop").returncode == 0
    assert "every promise was held" in verb("verify").stdout


POISON = """
from pathlib import Path

from resequencer.errors import PermanentError


def target(produced):
    report = str(produced["report"])
    if "ACTC" in report and not Path("cured").exists():
        raise PermanentError("the sheet for ACTC is missing")
    return report.encode()
"""


def test_what_was_set_aside_on_a_topic_is_requeued_or_edited_once_when_its_cause_is_gone(
    new_daemon: Callable[..., Daemon], on_kafka: tuple[str, ...], tmp_path: Path
) -> None:
    ours = ('target-type = "sheets:target"', "resequencer.storage-type = embedded", "resequencer.strategy = SEQUENCE")
    (tmp_path / "own.conf").write_text("\n".join([*on_kafka, *(f"{NOTIFICATION}.{each}" for each in ours)]), encoding="utf-8")
    (tmp_path / "sheets.py").write_text(POISON, encoding="utf-8")
    daemon = new_daemon(config="own.conf")
    verb = daemon.service.verb
    daemon.start()
    assert (
        verb("simulate", "--units", "40", "--garbage", "0", "--late", "0", "--losses", "0", "--duplicates", "0").returncode == 0
    )
    daemon.wait_for(lambda report: report.dead_letters.get("handler-failed", 0) >= 20, "the poison is set aside")
    daemon.wait_for(
        lambda report: bool(report.partitions) and all(each.lag == 0 for each in report.partitions), "everything is read"
    )
    letters = _listed(daemon)
    assert {each["state"] for each in letters} == {"new"}
    shown = verb("dead-letters", "show", letters[0]["number"])
    assert "the sheet for ACTC is missing" in shown.stdout
    discarded, edited, *others = [each["number"] for each in letters]
    assert verb("dead-letters", "discard", discarded, "--because", "a test").returncode == 0
    (tmp_path / "cured").touch()
    value = tmp_path / "value.json"
    value.write_text(verb("dead-letters", "show", edited, "--raw").stdout + "\n", encoding="utf-8")
    edit = ("dead-letters", "edit", edited, "--value", str(value), "--because", "a test")
    done = verb(*edit)
    assert (done.returncode, done.stdout.startswith(f"{edited}: edited, now at ")) == (0, True), done
    assert verb(*edit).returncode == 1
    done = verb("dead-letters", "requeue", "--all")
    assert (done.returncode, done.stdout.count(": requeued, now at ")) == (0, len(others)), done
    assert verb("dead-letters", "requeue", "--all").stdout == ""
    daemon.wait_for(lambda report: report.notifications.get("ACTC", 0) > len(others), "they are handled")
    assert daemon.report is not None
    assert daemon.report.notifications["ACTC"] == len(others) + 1
    states = [each["state"] for each in _listed(daemon)]
    assert Counter(states) == {"requeued": len(others), "edited": 1, "discarded": 1}
    assert verb("stop").returncode == 0


def _listed(daemon: Daemon) -> list[dict[str, str]]:
    done = daemon.service.verb("dead-letters", "list", "--json")
    assert done.returncode == 0, done.stderr
    letters: list[dict[str, str]] = json.loads(done.stdout)
    return letters


def test_check_connect_tells_of_a_topic_that_is_missing_and_of_brokers_that_are_away(
    new_daemon: Callable[..., Daemon], on_kafka: tuple[str, ...]
) -> None:
    mistyped = new_daemon(*on_kafka, f"{NOTIFICATION}.kafka.producer.topic=mistyped").service.verb("check", "--connect")
    assert mistyped.returncode == 4
    assert mistyped.stderr.startswith("resequencer: topic mistyped: this output topic does not exist, or the user may not")
    assert mistyped.stderr.count("\n") == 1
    away = new_daemon(
        *on_kafka, f'{KAFKA_CLIENTS}.bootstrap.servers="127.0.0.1:1"', f"{KAFKA_CLIENTS}.default.api.timeout.ms=1000"
    )
    checked = away.service.verb("check", "--connect")
    assert checked.returncode == 4
    assert checked.stderr.startswith("resequencer: the brokers at 127.0.0.1:1 (ipf.processing-data.ingress.kafka")


def test_a_partition_that_a_dead_producer_holds_up_is_named_with_what_to_do(
    new_daemon: Callable[..., Daemon], on_kafka: tuple[str, ...], kafka: KafkaServer, fresh_name: Naming
) -> None:
    source = next(each for each in on_kafka if "kafka.consumer.topic" in each).split("=")[1]
    daemon = new_daemon(*on_kafka)
    daemon.start()
    dead = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=fresh_name("dead"))
    dead.init_transactions()
    dead.begin_transaction()
    dead.send(source, b"never decided", partition=1).get(timeout=DEADLINE_SECONDS)
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as alive:
        for _ in range(50):
            alive.send(source, b"{}", partition=1)
    begins = f"{source}-1 has stood at offset 0 since "
    daemon.wait_for(lambda report: any(note.startswith(begins) for note in report.notes), "it is named")
    status = daemon.service.verb("status").stdout
    assert f"note: {begins}" in status
    assert re.search(f"{source}-1: .*51 behind", status)
    assert begins in daemon.log_file.read_text()
    dead.abort_transaction()
    dead.close()
    daemon.wait_for(lambda report: not report.notes and sum(report.dead_letters.values()) == 50, "it goes on")


def test_records_that_cannot_be_read_cost_themselves_and_a_corrupt_batch_its_partition(
    new_daemon: Callable[..., Daemon], on_kafka: tuple[str, ...], kafka: KafkaServer
) -> None:
    source = next(each for each in on_kafka if "kafka.consumer.topic" in each).split("=")[1]
    odd = [record(0, b"{}", (b"Gr\xfc\xdfe", b"")), record(0, b"{}"), record(2, b"{}", attributes=0x81)]
    send_batch(kafka.bootstrap, source, batch(odd), partition=1)
    send_batch(kafka.bootstrap, source, batch([record(0, b"a disk corrupts it")]), partition=2)
    corrupt(segment(kafka, source, 2), b"corrupts", b"CORRUPTS")
    daemon = new_daemon(*on_kafka)
    verb = daemon.service.verb
    aside = f"{source}-2 is not read from offset 0 on, other partitions are: "
    daemon.start()
    assert verb("simulate", "--units", "40", "--garbage", "0", "--late", "0", "--losses", "0").returncode == 0
    daemon.wait_for(
        lambda report: (
            any(note.startswith(aside) for note in report.notes)
            and sum(report.notifications.values()) > 20
            and _is_read(report, but=f"{source}-2")
            and sum(report.dead_letters.values()) >= 3
        ),
        "the other partitions are read",
    )
    report = daemon.report
    assert report is not None
    (note,) = [each for each in report.notes if each.startswith(aside)]
    assert (report.state, report.dead_letters) == ("ready", {"undecodable": 2, "no-unit-of-work": 1})
    assert note in verb("status").stdout


def _is_read(report: StatusReport, but: str) -> bool:
    return len(report.partitions) == 4 and all(each.lag == 0 for each in report.partitions if each.partition != but)
