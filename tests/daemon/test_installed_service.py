"""The service as `pip install` leaves it: without the checkout."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_an_installed_service_finds_its_reference_configuration_and_settings(tmp_path):
    source, site, elsewhere = tmp_path / "source", tmp_path / "site", tmp_path / "elsewhere"
    shutil.copytree(Path.cwd(), source, ignore=shutil.ignore_patterns(".*", "run", "tests", "*.egg-info", "__pycache__"))
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(source)], check=True)
    shutil.rmtree(source)
    program = "import sys; from daemon.command_line import main; sys.exit(main(['check', '--json', '--connect']))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(ended.stdout)
    assert report["file"] == str(site / "conf" / "application.conf")
    assert report["keys"]["payment-status-notification.settings"]["value"] == str(site / "conf" / "notification-settings.csv")
