"""Follows the recipes of docs/extending.md to the letter: writes the files that they show and makes their edits."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from harness.packages import CODE, ROOT

PAGE = ROOT / "docs" / "extending.md"
EXAMPLES = ROOT / "docs" / "examples"
COPIED = ("docs", "tests", "conf", *CODE)


class Recipe:
    """The section `Add …` of that name. A block names its file in its first line: `# payments/desks.py`, `{# a/b.html #}`.

    A long file is below docs/examples, under the path that it gets, and the section links to it.
    """

    def __init__(self, name: str) -> None:
        page = PAGE.read_text(encoding="utf-8")
        self.text = page.partition(f"\n## Add {name}\n")[2].partition("\n## ")[0]
        assert self.text, f"{PAGE.name} has no section 'Add {name}'"

    @property
    def files(self) -> dict[str, str]:
        """The files that the recipe shows completely, by path."""
        shown = [named for language in ("python", "csv", "hocon", "html") for named in self._named(language)]
        linked = re.findall(r"\]\(examples/([^)]+)\)", self.text)
        return {path: content for path, content in shown if "." in path and " " not in path} | {
            path: (EXAMPLES / path).read_text(encoding="utf-8") for path in linked
        }

    @property
    def setting(self) -> str:
        """The only line of configuration in the recipe."""
        (line,) = [block for block in _fenced("hocon", self.text) if not block.startswith("# ")]
        return line.strip()

    @property
    def paths(self) -> set[str]:
        """The files of the project that the recipe names."""
        named = re.findall(r"`([a-z_0-9./]+/[a-z_0-9.]+\.[a-z]+)`|\(\.\./([^)#]+)\)", self.text)
        return {one or other for one, other in named} - set(self.files) | {path for path, _ in self._named("diff")}

    def write(self, directory: Path) -> None:
        for path, content in self.files.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")

    def follow(self, checkout: Path) -> None:
        """Write the files of the recipe into a copy of the project, and make its edits."""
        self.write(checkout)
        edits = self._named("diff")
        assert edits, "it shows no edit"
        for path, edit in edits:
            file = checkout / path
            file.write_text(_edited(file.read_text(encoding="utf-8"), edit, path), encoding="utf-8")

    def _named(self, language: str) -> list[tuple[str, str]]:
        blocks = (block.partition("\n") for block in _fenced(language, self.text))
        named = [(re.fullmatch(r"# (.*)|\{# (.*) #\}", first), rest) for first, _, rest in blocks]
        return [(found[1] or found[2], rest) for found, rest in named if found]


def copied_checkout(directory: Path) -> Path:
    """Return a copy of the project that a test may change."""
    for name in COPIED:
        shutil.copytree(ROOT / name, directory / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, directory)
    return directory


def _fenced(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def _edited(text: str, edit: str, path: str) -> str:
    """Edit as a patch does: the lines without `+` must be in the file, one below the other, exactly once."""
    lines = edit.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    assert text.count(before) == 1, f"{path} has these lines {text.count(before)} times:\n{before}"
    return text.replace(before, after)
