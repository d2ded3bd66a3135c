"""The engine's output and commits are, byte for byte, what they were when this was written down."""

import pytest

from benchmarks._workload import made
from tests.harness.engine_output import DISORDER, digest_of

WRITTEN_DOWN = {
    "SEQUENCE": "6fd650a00ecb3d6fb8c9265cd5542f8f",
    "STRICT_SEQUENCE": "46d39d84d9598673d488d49f9a51ff67",
    "FULL_PAIN001": "5b313da3f855edbb805e5fe63a7c8301",
    "FULL_PAIN001_AND_CUSTOM_DATA": "947ada9c52025fe0f35aa5df872ea41c",
}
"""Printed by `python -m tests.harness.engine_output --envelopes 2000`. If a digest changes by intention, the files that this
writes with `--to`, in this checkout and in the one before, show the difference.
"""


@pytest.mark.slow
def test_what_it_lets_out_and_stores_is_the_same() -> None:
    with made(2_000, disorder=DISORDER) as workload:
        assert {name: digest_of(workload.read(), name).hexadecimal for name in WRITTEN_DOWN} == WRITTEN_DOWN
