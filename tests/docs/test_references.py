"""Every page, section, step and promise that a file of the repository refers to is in the repository."""

import re
import subprocess
from pathlib import Path

import pytest
from docs.references import find_broken, page_of

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("LICENSE", "tests/docs/references.py", "tests/docs/test_references.py")
"""The licence has sections of its own; the others name what they look for."""


def texts() -> dict[str, str]:
    """Every text file that belongs to the repository, by its path; what git ignores does not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {}
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            data = (ROOT / name).read_bytes()
            if b"\0" not in data:
                found[name] = data.decode("utf-8", "replace")
    return found


TEXTS = texts()
PAGES = {name: page_of(text) for name, text in TEXTS.items() if name.endswith(".md")}


def broken(path: str, text: str) -> list[str]:
    return find_broken(path, text, PAGES, lambda name: (ROOT / name).exists())


def test_nothing_refers_to_what_is_not_there() -> None:
    assert [problem for path, text in TEXTS.items() if path not in LEFT_OUT for problem in broken(path, text)] == []


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("domain/x.py", '"""See design-notes.md."""', "there is no page design-notes.md"),
        ("domain/x.py", '"""See docs/desing.md."""', "there is no page docs/desing.md"),
        ("docs/x.md", "see `decisions/0099-x.md`", "there is no page decisions/0099-x.md"),
        ("domain/x.py", '"""Rules (docs/contract.md, section 99)."""', "docs/contract.md has no section 99"),
        ("domain/x.py", '"""Rules (docs/contract.md,\n    sections 4 and 99)."""', "docs/contract.md has no section 99"),
        ("domain/x.py", '"""Rules (contract, section 4)."""', "whose section 4?"),
        ("docs/contract.md", "as in section 99", "whose section 99?"),
        ("domain/x.py", '"""As seed 004 has it."""', "is a note that readers do not have"),
        ("domain/x.py", '"""Step 21 of the protocol (docs/decisions/0004-exactly-once.md)."""', "has no step 21"),
        ("domain/x.py", '"""Steps 19 to 21 of docs/decisions/0004-exactly-once.md."""', "has no step 21"),
        ("domain/x.py", '"""Promise 8 of docs/design.md."""', "has no promise 8"),
        ("domain/x.py", '"""See decision 999."""', "there is no decision 999"),
        ("docs/x.md", "[there](contract.md#5-idds)", "docs/contract.md has no heading #5-idds"),
        ("docs/x.md", "[contract, section 5](contract.md#6-notifications-key-headers-marks)", "leads to contract.md#6-"),
        ("docs/x.md", "[there](../domain/nowhere.py)", "../domain/nowhere.py is not there"),
        ("docs/x.md", "[there](../../elsewhere/notes.txt)", "leads out of the repository"),
        ("docs/x.md", "as in ../../shared/design", "is a place beside the repository"),
        ("Makefile", "# see /home/me/notes", "is a place on one machine"),
    ],
)
def test_what_is_not_there_is_found(path: str, text: str, problem: str) -> None:
    assert [each for each in broken(path, text) if problem in each]


def test_every_promise_of_the_design_has_its_tests() -> None:
    tests = re.findall(r"def test_promise_([0-9]+)_", TEXTS["tests/service/test_promises.py"])
    assert {int(number) for number in tests} == PAGES["docs/design.md"].rows


def test_every_file_that_a_page_names_by_its_path_is_there() -> None:
    named = {
        (path, name)
        for path in PAGES
        if path.startswith("docs/")
        for name in re.findall(r"`([a-z_]+/[A-Za-z0-9_/]+\.(?:py|conf|csv))`", TEXTS[path])
    }
    assert sorted(each for each in named if not any(f"/{path}".endswith(f"/{each[1]}") for path in TEXTS)) == []
