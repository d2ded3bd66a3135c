"""Real servers for any test that names them: `kafka`, `redis_server`, `redis_cluster`, `infinispan`, `postgresql`, `artemis`,
`mosquitto`, `struck_server`, `own_server`.

All but the last two are shared by the whole run: a test leaves them running, and makes topics, namespaces, caches and tables of
its own, with names from `fresh_name`. What kills or pauses a server takes `struck_server`; what sets it up otherwise takes
`own_server`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import pytest
from harness.examples import NIGHTLY, QUICK
from harness.nightly import FAMILIES, Search, lines_of, search_minutes
from harness.order import slow_first
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:  # The clients take a second to import, which tests without servers need not wait for.
    from harness.servers.shared import SharedServers

    from servers.artemis import ArtemisServer
    from servers.infinispan import InfinispanServer
    from servers.kafka import KafkaServer
    from servers.mosquitto import MosquittoServer
    from servers.postgresql import PostgresqlServer
    from servers.redis import RedisCluster, RedisServer

# How long an example takes depends on the machine, not on the test. `make nightly` takes the profile with more examples.
settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=QUICK)
settings.register_profile("nightly", settings.get_profile("quick"), max_examples=NIGHTLY)
settings.load_profile("quick")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for each core where slow tests run: they wait for other processes more than they compute.

    One more than cores for the fast ones, because some of them wait, too.
    """
    cores = len(os.sched_getaffinity(0))
    return cores + 1 if config.option.markexpr == "not slow" else 2 * cores


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """What is for the night is slow, too, so that `make check` leaves it out."""
    if (marker := item.get_closest_marker("nightly")) is not None:
        (family,) = marker.args
        if family not in FAMILIES:
            raise pytest.UsageError(f"{item.nodeid}: {family!r} is no family of harness/nightly.py: {', '.join(FAMILIES)}")
        item.add_marker("slow")
        if minutes := search_minutes(marker.kwargs.get("minutes", 0)):
            item.add_marker(pytest.mark.timeout(60 * minutes + float(item.config.getini("timeout"))))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if processes := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        items[:] = slow_first(items, int(processes))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Here, for a process that spreads the tests over others reads no other conftest."""
    from harness.fault_table import tables_of

    reports = [each for reports in terminalreporter.stats.values() for each in reports]
    for name, lines in (*tables_of(reports), ("searches", lines_of(reports))):
        if lines:
            terminalreporter.section(name)
            terminalreporter.write("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def server_directory() -> Iterator[Path]:
    """Of this run. When the last of its processes has ended, whatever runs in it is stopped, and it is removed."""
    from harness.servers.shared import PARENT, RUN

    from servers.lease import clear_leftovers, leased

    clear_leftovers(PARENT)
    with leased(PARENT / RUN) as directory:
        yield directory


@pytest.fixture(scope="session")
def shared_servers(server_directory: Path, request: pytest.FixtureRequest) -> SharedServers:
    """All that tests of this run will ask for are launched together."""
    from harness.servers.shared import SharedServers

    shared = SharedServers(server_directory)
    shared.launch({name for item in request.session.items for name in getattr(item, "fixturenames", ())})
    return shared


@pytest.fixture(scope="session")
def kafka(shared_servers: SharedServers) -> KafkaServer:
    return shared_servers.kafka.start()


@pytest.fixture(scope="session")
def redis_server(shared_servers: SharedServers) -> RedisServer:
    return shared_servers.redis.start()


@pytest.fixture(scope="session")
def redis_cluster(shared_servers: SharedServers) -> RedisCluster:
    return shared_servers.redis_cluster.start()


@pytest.fixture(scope="session")
def infinispan(shared_servers: SharedServers) -> InfinispanServer:
    return shared_servers.infinispan.start()


@pytest.fixture(scope="session")
def postgresql(shared_servers: SharedServers) -> PostgresqlServer:
    return shared_servers.postgresql.start()


@pytest.fixture(scope="session")
def artemis(shared_servers: SharedServers) -> ArtemisServer:
    return shared_servers.artemis.start()


@pytest.fixture(scope="session")
def mosquitto(shared_servers: SharedServers) -> MosquittoServer:
    return shared_servers.mosquitto.start()


@pytest.fixture
def struck_server(server_directory: Path) -> Iterator[Callable[..., Any]]:
    """Return a running server that the test may kill, pause and start again: `struck_server(KafkaServer)`.

    A later test gets the same one, with all that is in it; none has it at the same time. So a test uses names from `fresh_name`.
    One that changes the settings of a server, or needs an empty one, takes `own_server`.
    """
    held: list[int] = []

    def get(kind: Any, settings: object = None) -> Any:
        name = f"struck-{kind.name}-{crc32(repr(settings).encode())}"
        directory = next(each for number in count() if is_mine(each := server_directory / f"{name}-{number}"))
        server = kind(directory, settings)
        if server.is_running:
            server.resume()
        return server.start()

    def is_mine(directory: Path) -> bool:
        directory.mkdir(exist_ok=True)
        held.append(os.open(directory / "in-use", os.O_CREAT | os.O_RDWR))
        try:
            flock(held[-1], LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return False
        return True

    yield get
    for each in held:
        os.close(each)


@pytest.fixture
def own_server(server_directory: Path) -> Iterator[Callable[..., Any]]:
    """Makes servers that end with the test: `own_server(RedisServer, RedisSettings(append="everysec")).start()`."""
    made: list[Any] = []

    def make(kind: Callable[..., Any], settings: object = None) -> Any:
        made.append(kind(server_directory / f"own-{uuid4().hex}", settings))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def search(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[Search]:
    """New seeds for as many minutes as the test's marker says: `@pytest.mark.nightly("simulation", minutes=5)`."""
    marker = request.node.get_closest_marker("nightly")
    made = Search(*marker.args, **marker.kwargs)
    yield made
    record_property(*made.as_property())


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """A maker of names that are unique in the run: `fresh_name("topic")`."""
    return lambda prefix: f"{prefix}-{uuid4().hex[:12]}"
