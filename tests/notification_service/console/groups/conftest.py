from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.counted_groups import GroupStage


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[GroupStage]:
    stage = GroupStage(tmp_path)
    yield stage
    stage.close()
