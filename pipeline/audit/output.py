"""Where an audit writes: what it is made of appears when all of it is there, and the last audit's stays until then."""

import shutil
from pathlib import Path

from pipeline.audit.job import RESULT

SUMMARY, PAGE = "summary.json", "page.html"
_BUILDING = ".building"


def begin(target: Path) -> Path:
    """An empty directory in which to write; what an audit that died has left there is gone."""
    building = target / _BUILDING
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    return building


def publish(target: Path) -> None:
    """What was written takes the place of what the last audit wrote.

    The verdict goes first and comes last: whoever is killed here leaves none, and never one beside the tables of another audit.
    """
    building = target / _BUILDING
    for verdict in (SUMMARY, PAGE):
        (target / verdict).unlink(missing_ok=True)
    shutil.rmtree(target / RESULT, ignore_errors=True)
    for name in (RESULT, PAGE, SUMMARY):
        (building / name).rename(target / name)
    building.rmdir()
