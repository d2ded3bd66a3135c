"""The clock of a worker: what the next process knows of it, and what an operator reads when it jumps."""

from pathlib import Path

import pytest

from notification_service.supervision import system_clock
from notification_service.supervision.system_clock import steady_clock

DAY = 86_400_000


def test_a_jump_is_logged_once_and_its_end_too_and_the_next_process_is_not_misled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wall, passed = 1_700_000_000_000, 5_000
    monkeypatch.setattr(system_clock.SystemClock, "now", lambda _: wall)
    monkeypatch.setattr(system_clock, "passed_ms", lambda: passed)

    def pass_by(seconds: int) -> None:
        nonlocal wall, passed
        for _ in range(seconds):
            wall, passed = wall + 1_000, passed + 1_000
            clock.now()

    clock = steady_clock(tmp_path, "w-0", 60_000, keeps=True)
    pass_by(90)
    assert caplog.messages == []
    wall += DAY
    pass_by(10)
    assert [each.partition(":")[0] for each in caplog.messages] == ["the clock of w-0 has jumped"]
    assert steady_clock(tmp_path, "w-0", 60_000, keeps=False).now() == wall - DAY
    wall -= DAY
    pass_by(10)
    assert [each.partition(";")[0] for each in caplog.messages[1:]] == ["the clock of w-0 agrees again"]
