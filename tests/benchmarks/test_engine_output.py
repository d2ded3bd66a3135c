"""The engine's output and commits are, byte for byte, what they were when this was written down."""

import pytest

from benchmarks._worker import made
from tests.harness.engine_output import DISORDER, digest_of

WRITTEN_DOWN = {
    "SEQUENCE": "b03a866743977c0b1533e7c3535ad58f",
    "STRICT_SEQUENCE": "c5e60555d757b98d519bac2776ff00de",
    "FULL_PAIN001": "c5d9344b2b516337c17357d3ffcaf018",
    "FULL_PAIN001_AND_CUSTOM_DATA": "ed74fd011eddedaa52b64457d4fda622",
}
"""Printed by `python -m tests.harness.engine_output --envelopes 2000`. If a digest changes by intention, the files that this
writes with `--to`, in this checkout and in the one before, show the difference.
"""


@pytest.mark.slow
def test_what_it_lets_out_and_stores_is_the_same() -> None:
    with made(2_000, *DISORDER) as workload:
        assert {name: digest_of(workload.read(), name).hexadecimal for name in WRITTEN_DOWN} == WRITTEN_DOWN
