"""A function that is named as a question has no effect (docs/decisions/0038-folders-and-the-fields-words.md)."""

import ast
from collections.abc import Iterator

import pytest
from harness.packages import CODE, ROOT

QUESTIONS = ("is_", "has_", "can_", "are_", "was_")
CHANGES = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft"}
    | {"put", "remove", "setdefault", "update"}
)
"""Methods that change a collection. One of the function's own may be changed."""
ACTS = frozenset(
    {"commit", "flock", "fsync", "ftruncate", "lockf", "mkdir", "publish", "rename", "request_rejoin", "rmdir", "send", "sleep"}
    | {"truncate", "unlink", "write", "write_bytes", "write_text"}
)


def effects(function: ast.FunctionDef) -> Iterator[str]:
    """Yield what a function does to anything but its own names."""
    for node in ast.walk(function):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(value=ast.Attribute(), ctx=ast.Store() | ast.Del()):
                yield ast.unparse(node)
            case ast.Call(func=ast.Name(id=name)) if name in ACTS:
                yield name
            case ast.Call(func=ast.Attribute(attr=name, value=of) as called) if name in ACTS | CHANGES:
                if name in ACTS or ast.unparse(of).startswith("self."):
                    yield ast.unparse(called)


def acting_questions(text: str) -> dict[str, list[str]]:
    functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    questions = [each for each in functions if each.name.lstrip("_").startswith(QUESTIONS)]
    return {each.name: found for each in questions if (found := list(effects(each)))}


def test_a_function_that_is_named_as_a_question_has_no_effect():
    modules = {file: file.read_text(encoding="utf-8") for room in CODE for file in (ROOT / room).rglob("*.py")}
    acting = {str(file.relative_to(ROOT)): found for file, text in modules.items() if (found := acting_questions(text))}
    assert acting == {}


@pytest.mark.parametrize(
    "code",
    [
        "def is_new(self): self._seen = 1",
        "def _has_room(self): self._left -= 1; return self._left",
        "def is_known(self, x): self._known[x] = True",
        "async def can_start(self): sleep(1)",
        "def is_locked(d): fcntl.flock(d, 2)",
        "def is_new(self, x): self._seen.add(x)",
    ],
)
def test_an_effect_is_found(code):
    assert acting_questions(code)
