"""A worker makes the file while another process, which looks on, opens it for the first time, too."""

from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread

import pytest

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile

AT_ONCE = 8
ROUNDS = 20
VALUE = {Slot("key", ""): Stored(b"value", None)}


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_file_that_several_make_at_once_is_not_damaged(tmp_path: Path, is_copy: bool) -> None:
    problems: list[str] = []
    damaged: list[bool] = []
    for number in range(ROUNDS):
        path, together = tmp_path / f"{number}.db", Barrier(AT_ONCE)

        def make(path: Path = path, together: Barrier = together) -> None:
            with closing(ValuesFile(path, is_copy=is_copy)) as file:
                together.wait()
                try:
                    file.is_empty()
                except (TransportUnavailable, TransportRefused) as error:
                    problems.append(str(error))
                damaged.append(file.is_damaged)

        threads = [Thread(target=make) for _ in range(AT_ONCE)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        with closing(ValuesFile(path, is_copy=is_copy)) as file, file.writing() as writing:
            writing.put(VALUE)
    assert damaged == [False] * AT_ONCE * ROUNDS
    # SQLite does not wait for a lock when it changes the kind of log. A worker tries again.
    assert [each for each in problems if not each.endswith(": database is locked")] == []
