"""A fresh series of envelopes for each test."""

import pytest
from driving import Envelopes


@pytest.fixture
def envelopes() -> Envelopes:
    return Envelopes()
