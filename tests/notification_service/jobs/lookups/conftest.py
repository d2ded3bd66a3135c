"""A fresh series of envelopes for each test."""

import pytest
from harness.driving import Envelopes


@pytest.fixture
def envelopes() -> Envelopes:
    return Envelopes()
