"""A browser, and live services with enough in them that the pages have something to show."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from harness.browser import running_browser
from harness.nightly import at_night
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from playwright.sync_api import Browser

from servers.server import ProgramMissing
from tests.browser.stage import BANK, RECEIVER, Stage, kafka_settings, storage_settings, to_topic

_ALWAYS = (
    f"{NOTIFICATION}.http.port=0",
    f"{NOTIFICATION}.http.metrics.port=0",
    f"{RESEQUENCER}.stash-timeout=1h",
    f"{NOTIFICATION}.orders.enabled=true",
    f'{NOTIFICATION}.delivery.receivers.{RECEIVER}.url="http://127.0.0.1:1"',
)
_SERVERS = {"redis": "redis_server", "infinispan": "infinispan"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a module, and not for the run: while it is there, no test of the same process can have an event loop of its own."""
    try:
        with running_browser() as found:
            yield found
    except ProgramMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=["files", "none", *at_night("pages", "redis", "infinispan")])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A running service: on files with SQLite, or on Kafka with this storage.

    The pages differ by the transport, and by whether the storage can be looked into: `files` and `none` have each of both.
    """
    directory, storage = tmp_path_factory.mktemp("service"), request.param
    if storage == "files":
        service = OperatedService(directory, *_ALWAYS)
        feed, output = service.append, (str(service.out_directory / "notifications.jsonl"),)
    else:
        kafka = request.getfixturevalue("kafka")
        url = request.getfixturevalue(_SERVERS[storage]).url if storage in _SERVERS else ""
        topics = [f"{each}-{uuid4().hex[:12]}" for each in ("in", "out", "dead", "orders", "outcomes", "events")]
        kafka.create_topics(*topics, partitions=4)
        keys = zip(("orders.topic", "orders.outcomes-topic", "delivery.events.topic"), topics[3:], strict=True)
        others = (f"{NOTIFICATION}.{key}={topic}" for key, topic in keys)
        bank = f'{NOTIFICATION}.delivery.receivers.{BANK} {{ url = "http://127.0.0.1:1", policy = blocking }}'
        service = OperatedService(
            directory, *_ALWAYS, bank, *others, *kafka_settings(kafka, *topics[:3]), *storage_settings(storage, url, topics[0])
        )
        feed, output = to_topic(kafka, topics[0]), ("--topic",)
    try:
        made = Stage(Daemon(service), feed, output, has_view=storage != "none", is_kafka=storage != "files")
        made.fill()
        yield made
    finally:
        service.verb("stop")
