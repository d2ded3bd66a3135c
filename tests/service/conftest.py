"""A service in a directory of its own, in main memory if the system has such a directory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from harness.service_under_test import Service


@pytest.fixture
def new_service() -> Iterator[Callable[..., Service]]:
    """Makes and starts services; each has its own directory."""
    made: list[tuple[Service, TemporaryDirectory[str]]] = []

    def make(**changes: Any) -> Service:
        directory = TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        service = Service(Path(directory.name), **changes)
        made.append((service, directory))
        return service.start()

    yield make
    for service, directory in made:
        service.kill()
        directory.cleanup()


@pytest.fixture
def service(new_service: Callable[..., Service]) -> Service:
    """A service with strategy SEQUENCE and the embedded storage."""
    return new_service()
