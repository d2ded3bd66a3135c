"""The listing of folders is the table of contents (docs/decisions/0038-folders-and-the-fields-words.md)."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from harness.packages import CODE, ROOT
from harness.processes.wheels import project_files

SAME_WORD = 3
"""How many modules, or templates, of a folder may begin with the same word: four are a folder of their own."""
IN_A_FOLDER = 20
"""How many modules a folder may have. One of tests, benchmarks or templates may have more: nothing imports from it."""
LISTED = (*CODE, "tests", "benchmarks")


def by_folder(files: Iterable[PurePosixPath]) -> dict[str, list[str]]:
    """Return the names of the modules and templates in each folder. Tests stand for themselves: each begins with `test`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in files:
        is_named = each.suffix in (".py", ".html") and not each.name.startswith(("__", "test_"))
        if is_named and each.parts[0] in LISTED:
            found[str(each.parent)].append(each.stem)
    return found


def same_words(folders: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the first words that more modules of a folder share than may."""
    words = {folder: Counter(each.lstrip("_").partition("_")[0] for each in names) for folder, names in folders.items()}
    shared = {folder: sorted(word for word, times in of.items() if times > SAME_WORD) for folder, of in words.items()}
    return {folder: found for folder, found in shared.items() if found}


def too_full(folders: dict[str, list[str]]) -> dict[str, int]:
    counts = {
        folder: len(names)
        for folder, names in folders.items()
        if folder.partition("/")[0] in CODE and not folder.endswith("templates")
    }
    return {folder: count for folder, count in counts.items() if count > IN_A_FOLDER}


def without_a_line(texts: dict[str, str]) -> list[str]:
    """Return the packages whose `__init__` does not begin with a line that says what they hold."""
    summaries = {path: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0] for path, text in texts.items()}
    return [path for path, line in summaries.items() if not line.endswith(".") or len(line.split()) < 3]


def test_no_folder_has_four_modules_that_begin_with_the_same_word():
    folders = by_folder(project_files())
    assert len(folders) > 100
    assert same_words(folders) == {}


def test_no_folder_has_more_modules_than_can_be_seen_at_once():
    assert too_full(by_folder(project_files())) == {}


def test_each_package_says_in_one_line_what_it_holds():
    files = [each for each in project_files() if each.name == "__init__.py" and each.parts[0] in CODE]
    assert len(files) > 40
    assert without_a_line({str(each): (ROOT / each).read_text(encoding="utf-8") for each in files}) == []


def test_a_violation_is_found():
    names = ("order.py", "_order_list.py", "order_book.py", "order_kinds.py", "orders.py", "test_order.py", "__init__.py")
    crowd = [f"name{number}.py" for number in range(31)]
    paths = [f"storage/{name}" for name in names] + [f"{folder}/{name}" for folder in ("guardian", "tests/x") for name in crowd]
    folders = by_folder(map(PurePosixPath, paths))
    assert same_words(folders) == {"storage": ["order"]}
    assert too_full(folders) == {"guardian": 31}
    lines = {"a": "", "b": '"""The words\nof all rooms."""', "c": '"""Steps."""', "d": '"""Orders and their outcomes."""'}
    assert without_a_line(lines) == ["a", "b", "c"]
