"""A console with a store of groups and one of a user's own, both in files."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.api_stage import ApiStage, serving


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ApiStage]:
    made = ApiStage(tmp_path)
    yield made
    made.close()


@pytest.fixture
def url(stage: ApiStage) -> Iterator[str]:
    """Of a server for people with the roles that the header `x-roles` names."""
    with serving(stage.application()) as address:
        yield address
        stage.console.end_streams()
