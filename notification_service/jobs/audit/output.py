"""The output directory of an audit. New results appear only when they are complete; until then the last audit's stay."""

import shutil
from pathlib import Path

from notification_service.jobs.audit.job import RESULT

SUMMARY, PAGE = "summary.json", "page.html"
_BUILDING = ".building"


def begin(target: Path) -> Path:
    """Return an empty directory to write to; files of an audit that was killed there are deleted."""
    building = target / _BUILDING
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    return building


def publish(target: Path) -> None:
    """Replace the last audit's results by those in the writing directory.

    The verdict is deleted first and written last. So a crash here leaves no verdict, and never one beside another audit's tables.
    """
    building = target / _BUILDING
    for verdict in (SUMMARY, PAGE):
        (target / verdict).unlink(missing_ok=True)
    shutil.rmtree(target / RESULT, ignore_errors=True)
    for name in (RESULT, PAGE, SUMMARY):
        (building / name).rename(target / name)
    building.rmdir()
