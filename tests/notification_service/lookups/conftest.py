"""Releases made for one test."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from harness import published_lookups
from harness.published_lookups import Rows

from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import ReleaseManifest


@pytest.fixture
def directory(tmp_path: Path) -> LookupsDirectory:
    return LookupsDirectory(tmp_path / "lookups")


@pytest.fixture
def publish(directory: LookupsDirectory) -> Callable[..., ReleaseManifest]:
    """Publishes tables, each `{key: value}`, as the next release: `publish({"t": {b"k": b"v"}}, shards=2)`."""
    numbers = iter(range(1, 1_000_000))
    publish_at = partial(published_lookups.publish, directory)

    def publish(tables: Mapping[str, Rows], shards: int = 1) -> ReleaseManifest:
        return publish_at(tables, shards, published_lookups.NOW + 1_000 * next(numbers))

    return publish
