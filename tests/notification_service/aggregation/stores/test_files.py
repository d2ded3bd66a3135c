"""A store in files whose values are lost or set back: what may have been reported before is marked."""

from pathlib import Path

import pytest

from guardian.headers import MARKED, POSSIBLE_DUPLICATE
from tests.notification_service.aggregation.stores.stages import FileStage, make_runner, run_until_read


@pytest.fixture
def stage(tmp_path: Path) -> FileStage:
    return FileStage(tmp_path)


def marks(stage: FileStage) -> list[tuple[str, bool]]:
    """Return the completions by their keys, and whether each is marked."""
    return [(each.key, each.headers.get(POSSIBLE_DUPLICATE) == MARKED) for each in stage.completions()]


def run(stage: FileStage) -> None:
    one = make_runner(stage)
    run_until_read(stage, one)
    one.close()


def test_what_is_reported_once_more_is_marked_though_commands_have_come_since(stage: FileStage) -> None:
    stage.send("a", "m1", number=1, of=1)
    run(stage)
    stage.lose_values()
    stage.send("b", "m1", number=1, of=1)
    run(stage)
    stage.send("c", "m1", number=1, of=1)
    run(stage)
    assert marks(stage) == [("a", False), ("a", True), ("b", True), ("c", False)]


def test_the_mark_outlives_a_worker_that_dies_while_it_reads_once_more(stage: FileStage, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in "ab":
        stage.send(key, "m1", number=1, of=1)
    run(stage)
    stage.lose_values()
    monkeypatch.setattr("notification_service.aggregation.runner._AT_ONCE", 1)
    one = make_runner(stage)
    one.turn()
    one.close()
    assert marks(stage) == [("a", False), ("b", False), ("a", True)]
    run(stage)
    assert marks(stage) == [("a", False), ("b", False), ("a", True), ("b", True)]


def test_values_that_were_set_back_lose_no_report_and_what_is_reported_once_more_is_marked(stage: FileStage) -> None:
    stage.send("a", "m1", number=1, of=1)
    run(stage)
    stage.back_up_values()
    for key in "bc":
        stage.send(key, "m1", number=1, of=1)
    run(stage)
    stage.restore_values()
    for key in "def":
        stage.send(key, "m1", number=1, of=1)
    run(stage)
    stage.send("g", "m1", number=1, of=1)
    run(stage)
    before = [("a", False), ("b", False), ("c", False)]
    assert marks(stage)[:5] == [*before, ("b", True), ("c", True)]
    assert [key for key, _ in marks(stage)[5:]] == ["d", "e", "f", "g"]
    assert marks(stage)[-1] == ("g", False)


def test_what_may_be_written_beyond_a_lost_position_is_marked(stage: FileStage) -> None:
    stage.send("a", "m1", number=1, of=1)
    run(stage)
    stage.lose_values()
    stage.lose_positions()
    run(stage)
    assert marks(stage) == [("a", False), ("a", True)]
