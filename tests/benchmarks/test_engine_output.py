"""The engine's output and commits are, byte for byte, what they were when this was written down."""

import pytest

from benchmarks._worker import made
from tests.harness.engine_output import DISORDER, digest_of

WRITTEN_DOWN = {
    "SEQUENCE": "978a31f4fb4901ce267c74580621a8d3",
    "STRICT_SEQUENCE": "8523f97c5558d4ffee8c9c152211078e",
    "FULL_PAIN001": "a1058d978f317cfa40e0b52b2cb50423",
    "FULL_PAIN001_AND_CUSTOM_DATA": "428e3b1a7a0c1e01a9fcc16f1d39e5ea",
}
"""Printed by `python -m tests.harness.engine_output --envelopes 2000`. If a digest changes by intention, the files that this
writes with `--to`, in this checkout and in the one before, show the difference.
"""


@pytest.mark.slow
def test_what_it_lets_out_and_stores_is_the_same() -> None:
    with made(2_000, *DISORDER) as workload:
        assert {name: digest_of(workload.read(), name).hexadecimal for name in WRITTEN_DOWN} == WRITTEN_DOWN
