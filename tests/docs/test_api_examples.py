"""The examples of the API in docs/operations.md run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness.api_stage import MANY, ApiStage, serving

from notification_service.console.access.identity import NoLogin
from notification_service.console.application import make_application

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are for curl, which is not installed")
def test_the_curl_examples_of_the_api_do_what_they_say(tmp_path: Path) -> None:
    section = OPERATIONS.read_text(encoding="utf-8").partition("\n## The API\n")[2].partition("\n## ")[0]
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
    stage = ApiStage(tmp_path)
    with serving(make_application(stage.console, NoLogin(), MANY)) as url:
        ran = subprocess.run(
            ["bash", "-c", script],
            env={"CONSOLE": url, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    stage.close()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert stage.input.read_bytes().count(b"secret") == 2
    assert stage.workers.asked == [("restart", 0)]
    assert '"unit":"uow-1"' in ran.stdout
