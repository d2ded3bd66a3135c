from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api_stage import ApiStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ApiStage]:
    made = ApiStage(tmp_path)
    yield made
    made.close()
