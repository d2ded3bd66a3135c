"""A module has two importers or a hundred lines, or it lives with its caller (decision 38)."""

import ast
from collections import defaultdict
from collections.abc import Mapping

from harness.packages import PACKAGES, ROOT, place_of

SMALL = 100
Importers = Mapping[str, set[str]]


def importers_of(modules: Mapping[str, str]) -> Importers:
    """Return who imports each module for good, by paths. An import in a function counts for all places, as if it were many."""
    names = {path.removesuffix(".py").replace("/", "."): path for path in modules}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in modules.items():
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for name in node.names:
                    whole = names.get(f"{node.module}.{name.name}")
                    target = whole or names.get(node.module)
                    if target is not None and target != path:
                        is_plain = whole is None and node in tree.body
                        found[target] |= {path} if is_plain else {path, f"{path}, in a way of its own"}
    return found


def apart_from_its_caller(modules: Mapping[str, str], pure: str) -> list[str]:
    """Return the small modules that only one module of the same place imports, and that no rule names as pure."""
    importers = importers_of(modules)
    return sorted(
        path
        for path, text in modules.items()
        if text.count("\n") < SMALL
        and not any(each.endswith(("__init__.py", "__main__.py")) for each in (path, *importers[path]))
        and len(importers[path]) == 1
        and {place_of(each) for each in importers[path]} == {place_of(path)}
        and path.removesuffix(".py").replace("/", ".") not in pure.split()
    )


def test_a_small_module_of_one_caller_lives_with_it() -> None:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    modules = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    assert len(modules) > 300
    assert apart_from_its_caller(modules, (ROOT / "setup.cfg").read_text(encoding="utf-8")) == []


def test_a_violation_is_found() -> None:
    modules = {
        "storage/a.py": "from storage.b import b\nfrom storage.c import c\nfrom storage.e import e\n",
        "storage/b.py": "",
        "storage/c.py": "\n" * SMALL,
        "storage/d.py": "from storage.e import e\ndef f():\n    from storage.g import g\n",
        "storage/e.py": "",
        "storage/g.py": "",
        "guardian/h.py": "from storage.i import i\n",
        "storage/i.py": "",
    }
    assert apart_from_its_caller(modules, "") == ["storage/b.py"]
    assert apart_from_its_caller(modules, "    storage.b\n") == []
