"""A test run that is killed leaves no daemon behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes.operated_service import OperatedService
from harness.waiting import wait_until

from notification_service.supervision.locks import find_holder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RUN = """
import sys, time
from pathlib import Path
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import OperatedService
Daemon(OperatedService(Path(sys.argv[1]))).start()
print("started", flush=True)
time.sleep(600)
"""


def test_a_daemon_ends_with_the_run_that_started_it(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    service = OperatedService(tmp_path)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"started\n"
        assert find_holder(service.run_directory) is not None
        run.kill()
    try:
        wait_until(lambda: find_holder(service.run_directory) is None, "supervisor and worker end")
    finally:
        service.verb("stop")
