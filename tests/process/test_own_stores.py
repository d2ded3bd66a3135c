"""A user's own store on Kafka, whose completions are pushed: nothing is missed or doubled, although the console is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService, kafka_overrides
from harness.recipes import ROOT, Recipe
from harness.waiting import DEADLINE_SECONDS, wait_until
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from notification_service.wiring.aggregation import open_atomic_store
from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow
CONF = "conf/import-jobs.conf"


class Follower(Thread):
    """A client that listens, and listens again behind its last id at whatever console there is."""

    def __init__(self, address: Callable[[], str], store: str) -> None:
        super().__init__(daemon=True)
        self.path = f"/api/v1/stores/{store}"
        self.keys: list[str] = []
        self.last = ""
        self.begun = 0
        self.is_stopping = Event()
        self._address = address

    def run(self) -> None:
        while not self.is_stopping.wait(0.1):
            try:
                self.listen(self._address())
            except (OSError, httpx.HTTPError, WebSocketException):
                continue  # The console was killed, or is not there yet.

    def listen(self, address: str) -> None:
        raise NotImplementedError

    def take(self, place: str, name: str, data: str) -> None:
        """An event changes what is known at once, as a client keeps both in one transaction."""
        self.begun += name == "begin"
        if name == "completed":
            self.keys.append(json.loads(data)["key"])
        self.last = place or self.last


class SocketFollower(Follower):
    def listen(self, address: str) -> None:
        after = f"?after={self.last}" if self.last else ""
        with connect(f"{address.replace('http', 'ws')}{self.path}/socket{after}", proxy=None) as socket:
            for message in socket:
                event = json.loads(message)
                self.take(event["id"], event["event"], json.dumps(event["data"]))


class EventFollower(Follower):
    def listen(self, address: str) -> None:
        given = {"Last-Event-ID": self.last} if self.last else {}
        with httpx.stream(
            "GET", f"{address}{self.path}/events", headers=given, timeout=DEADLINE_SECONDS, trust_env=False
        ) as answer:
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                fields[name] = value
                if not line and "event" in fields:
                    self.take(fields.get("id", ""), fields["event"], fields["data"])
                    fields = {}


def test_both_clients_get_each_completion_once_although_the_console_is_killed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_service: Callable[..., OperatedService],
    kafka: KafkaServer,
    fresh_name: Callable[[str], str],
) -> None:
    Recipe("a store of your own").write(tmp_path)
    shutil.copy(ROOT / "conf" / "application.conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    names = [fresh_name(each) for each in ("in", "out", "dead", "facts", "reports", "group-dead")]
    store = fresh_name("jobs").lower().replace("_", "-")[:60]
    kafka.create_topics(*names, f"{store}-commands", partitions=2)
    of_groups = dict(zip(("facts", "reports", "dead-letters"), names[3:], strict=True)) | {"values": fresh_name("values")}
    conf = tmp_path / CONF
    conf.write_text(conf.read_text().replace("stores.jobs", f"stores.{store}"))
    service = new_service(
        *kafka_overrides(kafka.bootstrap, *names[:3], fresh_name("group")),
        *(f"{NOTIFICATION}.aggregation.{name}.topic={topic}" for name, topic in of_groups.items()),
        f"{NOTIFICATION}.storage.namespace={fresh_name('space')}",
        f"{NOTIFICATION}.http.port=0",
        f"{NOTIFICATION}.http.metrics.port=0",
        config=CONF,
    )
    service.begin_verb("groups", "run")
    console = service.begin_verb("console")

    def address() -> str:
        file = service.run_directory / "console.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        return str(found.get("urls", {}).get("console", "http://127.0.0.1:9"))

    followers = [SocketFollower(address, store), EventFollower(address, store)]
    for each in followers:
        each.start()

    def wait_until_they_listen(before: Sequence[int]) -> None:
        wait_until(lambda: all(each.begun > begun for each, begun in zip(followers, before, strict=True)), "both listen")

    wait_until_they_listen([0, 0])
    given = list[str]()
    with open_atomic_store(Path(CONF), store, service.arguments[3:]) as commands:

        def finish(*requests: str) -> None:
            for each in requests:
                commands.update(each, "job-0", {"jobs": 1, "contacts": 1})
            given.extend(requests)

        for kill in range(2):
            finish(*(f"request-{kill}-{number}" for number in range(20)))
            begun = [each.begun for each in followers]
            console.kill()
            console.wait(DEADLINE_SECONDS)
            finish(f"meanwhile-{kill}")
            console = service.begin_verb("console")
            wait_until_they_listen(begun)
        wait_until(lambda: all(len(each.keys) >= len(given) for each in followers), "all is pushed")
        finish("last")
    wait_until(lambda: all("last" in each.keys for each in followers), "the last one is pushed")
    for each in followers:
        assert sorted(each.keys) == sorted(given)
        each.is_stopping.set()
    _look(address(), store)


def _look(address: str, store: str) -> None:
    """The console shows the values, and the changes that the brokers have."""
    path = f"{address}/api/v1/stores/{store}"

    def get(what: str, **parameters: str) -> Any:
        return httpx.get(f"{path}/{what}", params=parameters, timeout=DEADLINE_SECONDS, trust_env=False).json()

    wait_until(lambda: get("values", text="last").get("values"), "the values are read")
    assert len(get("values")["values"]) == 43
    found = get("value", key="last")
    assert found["value"]["value"] == {"jobs": 1, "done": 1, "contacts": 1}
    assert [each["name"] for each in found["members"]] == ["job-0"]
    assert {each["member"]: each["value"] for each in found["changes"]} == {None: found["value"]["value"], "job-0": 1}
