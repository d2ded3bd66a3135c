"""What the tests of the embedded storage share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.embedded_harness import EmbeddedHarness, memory_directory


@pytest.fixture
def embedded() -> Iterator[EmbeddedHarness]:
    with memory_directory() as directory:
        harness = EmbeddedHarness(Path(directory))
        yield harness
        harness.close()


@pytest.fixture
def embedded_on_disk(tmp_path: Path) -> Iterator[EmbeddedHarness]:
    harness = EmbeddedHarness(tmp_path)
    yield harness
    harness.close()
