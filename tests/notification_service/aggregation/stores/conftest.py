"""The stores, each of which has to pass the same tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notification_service.aggregation.stores.stages import FileStage, StoreStage, TopicStage


@pytest.fixture(params=["files", pytest.param("topics", marks=pytest.mark.slow)])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreStage]:
    if request.param == "files":
        yield FileStage(tmp_path)
    else:
        yield TopicStage(request.getfixturevalue("topics"), tmp_path)
