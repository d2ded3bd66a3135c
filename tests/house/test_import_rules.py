"""Each import rule of setup.cfg notices an import that it forbids."""

import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from harness.packages import ROOT
from harness.recipes import copied_checkout

PLANTED = {
    "layers": ("resequencer/clock.py", "import guardian.headers"),
    "places": ("notification_service/events/wire.py", "import notification_service.commands.check"),
    "pure": ("resequencer/printable.py", "import os"),
    "spark": ("storage/fencing.py", "import pyspark"),
    "hocon": ("storage/fencing.py", "import pyhocon"),
    "thespian": ("storage/fencing.py", "import thespian"),
    "sql": ("storage/fencing.py", "import sqlalchemy"),
    "web": ("storage/fencing.py", "import starlette"),
    "clients": ("storage/fencing.py", "import kafka"),
    "servers": ("servers/server.py", "import storage.fencing"),
    "no-servers": ("storage/fencing.py", "import servers.server"),
}
"""By contract: a module, and an import that it must not have."""


@pytest.mark.slow
def test_a_forbidden_import_breaks_its_rule(tmp_path: Path) -> None:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    rules = {name.rpartition(":")[2]: parser[name]["name"] for name in parser.sections() if "importlinter:contract:" in name}
    assert rules.keys() == PLANTED.keys()
    checkout = copied_checkout(tmp_path)
    for path, statement in PLANTED.values():
        with (checkout / path).open("a", encoding="utf-8") as file:
            file.write(f"\n{statement}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = os.environ | {"COLUMNS": "500", "PYTHONPATH": str(checkout)}
    ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    broken = set(re.findall(r"^(.*) BROKEN\b", ended.stdout, re.MULTILINE))
    assert broken == set(rules.values()), ended.stdout
