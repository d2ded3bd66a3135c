"""A user's own store, as its recipe says: jobs of an import are counted by a real worker, in files and on topics."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService, kafka_overrides
from harness.recipes import ROOT, Recipe
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.connectors.line_format import Line, decode_line
from notification_service.wiring.aggregation import open_atomic_store
from resequencer.errors import ConfigurationError
from servers.kafka import KafkaServer

NewService = Callable[..., OperatedService]
CONF = "conf/import-jobs.conf"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the recipe was followed; the test is there."""
    Recipe("a store of your own").write(tmp_path)
    shutil.copy(ROOT / "conf" / "application.conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def import_job(request: str, job: int, jobs: int) -> None:
    command = [sys.executable, "-m", "payments.importer", request, str(job), str(jobs)]
    subprocess.run(command, check=True, timeout=DEADLINE_SECONDS)


def lines(file: Path) -> list[Line]:
    read = [decode_line(each) for each in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []
    assert all(isinstance(each, Line) for each in read)
    return [each for each in read if isinstance(each, Line)]


@pytest.mark.slow
def test_the_jobs_of_an_import_are_counted_and_its_completion_is_told_once(directory: Path, new_service: NewService) -> None:
    service = new_service(directory, f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0", config=CONF)
    jobs = service.run_directory / "groups" / "jobs"
    for job in (0, 1, 1, 2, 0):
        import_job("request-7", job, 3)
    import_job("request-8", 0, 2)
    worker = service.begin_verb("groups", "run")
    completions = wait_until(lambda: lines(jobs / "completions.jsonl"), "the completion")
    assert [(each.key, json.loads(each.value)) for each in completions] == [
        (b"request-7", {"request": "request-7", "contacts": 300})
    ]
    service.begin_verb("console")
    served = wait_until(lambda: _served(service.run_directory / "console.json"), "the console has an address")
    command = [sys.executable, "-u", "-m", "payments.notified", served, "0:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as notified:
        assert notified.stdout is not None
        place, _, value = notified.stdout.readline().partition(" ")
        assert value == "{'request': 'request-7', 'contacts': 300}\n"
        assert place == f"0:{(jobs / 'completions.jsonl').stat().st_size}"
        import_job("request-8", 1, 2)
        assert notified.stdout.readline().endswith(" {'request': 'request-8', 'contacts': 200}\n")
        notified.terminate()
    assert len(lines(jobs / "completions.jsonl")) == 2
    with open_atomic_store(Path(CONF), "jobs", service.arguments[3:]) as store:
        assert store.get("request-7") == {"jobs": 3, "done": 3, "contacts": 300}
        assert store.get("request-9") is None
        store.update("request-9", None, {"no": "jobs"})
    letters = wait_until(lambda: lines(jobs / "dead-letters.jsonl"), "a command that apply cannot use is a dead letter")
    assert b"apply raised KeyError" in dict(letters[0].headers)["dead-letter-error"]
    worker.terminate()
    assert worker.wait(DEADLINE_SECONDS) == 0


def test_a_command_that_can_never_be_applied_is_refused_where_it_is_given(directory: Path) -> None:
    with open_atomic_store(directory / CONF, "jobs") as store:
        for key, member, command in (("a\nb", None, 1), ("", None, 1), ("a", "", 1), ("a", "x" * 257, 1), ("a", None, object())):
            with pytest.raises(ValueError, match=r"key|member|JSON"):
                store.update(key, member, command)
        assert store.get("a") is None
    assert not (directory / "run").exists()


@pytest.mark.parametrize("name", ["job", "payments"])
def test_a_store_that_is_not_configured_is_refused_by_name(directory: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="it has jobs") as raised, open_atomic_store(directory / CONF, name):
        pass
    assert f"{NOTIFICATION}.aggregation.stores" in str(raised.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("apply", "payments.import_jobs:aply", "aply"), ("on-value", "payments.nowhere:on_value", "nowhere")],
)
def test_a_wrong_name_is_refused_before_anything_starts(
    directory: Path, new_service: NewService, key: str, value: str, expected: str
) -> None:
    service = new_service(directory, f'{NOTIFICATION}.aggregation.stores.jobs.{key}="{value}"', config=CONF)
    for verb in ("check", "start"):
        refused = service.verb(verb)
        assert refused.returncode == 3, refused.stderr
        assert f"{NOTIFICATION}.aggregation.stores.jobs.{key}" in refused.stderr
        assert expected in refused.stderr
    assert not service.run_directory.exists()


@pytest.mark.slow
def test_the_same_store_runs_on_topics(
    directory: Path, new_service: NewService, kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    from kafka import KafkaConsumer
    from kafka.admin import ConfigResource, ConfigResourceType

    from notification_service.connectors.kafka.core.client_options import KEPT_FOR_EVER

    names = [fresh_name(each) for each in ("in", "out", "dead", "facts", "reports", "group-dead")]
    store = fresh_name("jobs").lower().replace("_", "-")[:60]
    kafka.create_topics(*names, f"{store}-commands", partitions=2)
    of_groups = dict(zip(("facts", "reports", "dead-letters"), names[3:], strict=True)) | {"values": fresh_name("values")}
    conf = directory / CONF
    conf.write_text(conf.read_text().replace("stores.jobs", f"stores.{store}"))
    service = new_service(
        directory,
        *kafka_overrides(kafka.bootstrap, *names[:3], fresh_name("group")),
        *(f"{NOTIFICATION}.aggregation.{name}.topic={topic}" for name, topic in of_groups.items()),
        f"{NOTIFICATION}.storage.namespace={fresh_name('space')}",
        config=CONF,
    )
    assert service.verb("check", "--connect").returncode == 0
    worker = service.begin_verb("groups", "run")
    overrides = service.arguments[3:]
    with open_atomic_store(Path(CONF), store, overrides) as given:
        for job in (0, 1, 1, 2):
            given.update("request-7", f"job-{job}", {"jobs": 3, "contacts": 100})
    settings = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    wait_until(lambda: _exists(kafka, f"{store}-completions"), "the worker makes the topics")
    with closing(KafkaConsumer(f"{store}-completions", **settings)) as consumer:
        found = wait_until(lambda: [each for got in consumer.poll(500).values() for each in got], "the completion")
    assert [(each.key, json.loads(each.value)) for each in found] == [(b"request-7", {"request": "request-7", "contacts": 300})]
    with open_atomic_store(Path(CONF), store, overrides) as given:
        assert given.get("request-7") == {"jobs": 3, "done": 3, "contacts": 300}
    with kafka.admin() as admin:
        wanted = [ConfigResource(ConfigResourceType.TOPIC, f"{store}-{each}") for each in ("completions", "dead-letters")]
        made = admin.describe_configs(wanted, config_filter="dynamic")["topic"]
    completions, letters = ({key: found["value"] for key, found in made[each.name].items()} for each in wanted)
    assert completions["cleanup.policy"] == "delete", "whatever brokers do by default"
    assert letters.items() >= KEPT_FOR_EVER.items()
    worker.terminate()
    assert worker.wait(DEADLINE_SECONDS) == 0


def _exists(kafka: KafkaServer, topic: str) -> bool:
    with kafka.admin() as admin:
        return topic in admin.list_topics()


def _served(file: Path) -> str:
    found = json.loads(file.read_text()) if file.exists() else {}
    return str(found.get("urls", {}).get("console", ""))
