"""The calls on files that several readers and writers share."""

import os
from pathlib import Path

import pytest

from notification_service.connectors.files.operations import SystemFiles, find_end_of_lines

BLOCK = 64 * 1024


@pytest.mark.parametrize("start", [0, 3, BLOCK])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"torn",
        b"\n",
        b"a\nb\n",
        b"a\ntorn",
        b"\n" + b"x" * BLOCK,
        b"\n" + b"x" * (BLOCK - 1),
        b"a\n" * BLOCK + b"x" * 3 * BLOCK,
    ],
    ids=["empty", "torn", "newline", "whole", "torn-end", "a-block", "one-read", "long-end"],
)
def test_the_end_of_the_last_line_is_found_however_long_the_torn_one_behind_it_is(
    tmp_path: Path, content: bytes, start: int
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = find_end_of_lines(SystemFiles(), descriptor, len(content), start)
    finally:
        os.close(descriptor)
    assert found == max(start, content.rfind(b"\n", start) + 1)
