"""What the tests of the embedded storage share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.embedded_harness import EmbeddedHarness


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedHarness]:
    harness = EmbeddedHarness(tmp_path)
    yield harness
    harness.close()
