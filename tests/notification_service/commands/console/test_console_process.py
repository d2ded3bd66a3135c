"""What the process of the console is for the kernel."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.waiting import DEADLINE_SECONDS


@pytest.mark.slow
def test_a_kernel_without_memory_ends_the_console_before_a_worker() -> None:
    run = "from notification_service.commands.console import offer_to_be_killed as offer; offer(); offer()"
    program = f"{run}; print(open('/proc/self/oom_score_adj').read())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(ended.stdout) == max(500, own)
