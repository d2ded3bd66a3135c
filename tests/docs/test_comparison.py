"""The comparison in docs/delivery.md names, for each thing that it says of the service, a test that there is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = re.search(
    r"^### Beside Greyhound and Spring Kafka$(.*?)^## ", (ROOT / "docs/delivery.md").read_text(), re.DOTALL | re.MULTILINE
)
ROWS = [line.strip("| ").split(" | ") for line in (SECTION[1] if SECTION else "").splitlines() if line.startswith("| ")][1:]


def test_each_row_names_a_test_that_there_is() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "tests/delivery").rglob("test_*.py"))
    tests = set(re.findall(r"^def (test_\w+)\(", source, re.MULTILINE))
    assert len(ROWS) > 10
    assert [row[0] for row in ROWS if len(row) != 5 or row[4].strip("`") not in tests] == []
