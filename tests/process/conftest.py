"""Real services that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService

from servers.infinispan import InfinispanServer
from servers.receiver import ReceiverServer
from servers.redis import RedisServer


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[..., OperatedService]]:
    """A maker of services in fresh directories. Its arguments go to `OperatedService`; the service is not started yet."""
    made: list[OperatedService] = []

    def make(*overrides: str, directory: Path = tmp_path, **what: Any) -> OperatedService:
        made.append(OperatedService(directory, *overrides, **what))
        return made[-1]

    yield make
    for each in made:
        each.clear_away()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverServer]:
    """A receiver of notifications that takes all of them."""
    server = ReceiverServer(tmp_path / "receiver")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def service(new_service: Callable[..., OperatedService]) -> OperatedService:
    """A service with the defaults: SEQUENCE, files, the embedded storage."""
    return new_service()


@pytest.fixture
def service_on(new_service: Callable[..., OperatedService]) -> Callable[..., OperatedService]:
    """A maker of services on files that keep their state on the given server. Deadlines and time-outs are short.

    It takes a Redis or an Infinispan server, then further overrides.
    """

    def make(server: RedisServer | InfinispanServer, *overrides: str) -> OperatedService:
        settings = f"{NOTIFICATION}.storage.{server.name}"
        return new_service(
            f"{RESEQUENCER}.storage-type={server.name}",
            f'{settings}.url="{server.url}"',
            f"{settings}.timeout=1s",
            f"{RESEQUENCER}.stash-timeout=1s",
            f"{INGRESS}.batch-size=50",
            *overrides,
        )

    return make


@pytest.fixture
def new_daemon(new_service: Callable[..., OperatedService]) -> Iterator[Callable[..., Daemon]]:
    made: list[Daemon] = []

    def make(*overrides: str, **what: Any) -> Daemon:
        made.append(Daemon(new_service(*overrides, **what)))
        return made[-1]

    yield make
    for daemon in made:
        daemon.service.verb("stop")


@pytest.fixture
def daemon(new_daemon: Callable[..., Daemon]) -> Daemon:
    return new_daemon()
