"""The rooms of the project: its packages, by a rule, so that no test needs a list of its own."""

from pathlib import Path

from harness.processes.wheels import NOT_PACKAGED

ROOT = Path(__file__).parents[2]
ROOMS = tuple(sorted({each.parent.name for each in ROOT.glob("*/__init__.py")} - NOT_PACKAGED))
CODE_ROOMS = tuple(each for each in ROOMS if each != "conf")
"""`conf` is a package only so that the wheel holds its files."""
SERVICE_ROOMS = tuple(each for each in CODE_ROOMS if each != "servers")
"""The rooms of the service itself. `servers` imports nothing of them, and they nothing of it."""
