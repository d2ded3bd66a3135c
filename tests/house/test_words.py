"""Phrases that an operator could not understand do not come back: in pages, help, errors, metrics and the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RIDDLES = re.compile(
    r"\bis expected['\"]|>Give one:|>Because<|<label>Because|waits leaves|Backlog worked off|>To leave<| to leave['\"]\s*$"
    r"|>Undecided<|<dt>Failed last|for how long\.<|begins? so\b\.?['\"<]|>None was|has 1 payments|so many at most"
    r"|what operators see: pages|were let out:|taken over none|if that is different",
    re.IGNORECASE,
)
PLACES = ("notification_service", "guardian", "resequencer", "storage", "conf", "docs")


def test_nothing_that_an_operator_reads_has_a_riddle() -> None:
    files = [each for place in PLACES for kind in ("py", "html", "conf", "md") for each in (ROOT / place).rglob(f"*.{kind}")]
    assert len(files) > 500
    lines = [(each, line) for each in files for line in each.read_text(encoding="utf-8").splitlines()]
    assert [(str(each.relative_to(ROOT)), line.strip()) for each, line in lines if RIDDLES.search(line)] == []
