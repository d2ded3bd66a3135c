"""A test waits for an event, never for a time, so that a busy machine makes none fail (tests/harness/waiting.py)."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest
from harness.packages import ROOT

SLEEPERS = {
    "harness/waiting.py": "the one place that waits",
    "harness/foreign_receiver.py": "a program of its own, which imports nothing of ours",
    "notification_service/delivery/direct/simulated_loop.py": "time that passes there is simulated",
}
"""Who may sleep, and why."""

LINGERERS = {
    "harness/scripted_receiver.py": "a receiver that answers late",
    "faults/relay.py": "a slow network",
    "faults/test_of_servers.py": "an outage of two minutes",
    "process/test_paused_kafka.py": "an outage that is longer than `verify` waits without progress",
    "process/test_soak.py": "a load that goes on for a while",
}
"""Who may take long by intention: what is tried there is the length itself."""

MIN_SECONDS = 60
"""A shorter deadline is one that a busy machine passes."""

Found = Mapping[str, Mapping[str, list[str]]]


def found_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield `sleep`, `linger` or `deadline`, one shorter than a minute, with the code."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="time" | "asyncio", names=names) if any(each.name == "sleep" for each in names):
                yield "sleep", ast.unparse(node)
            case ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep") | ast.Attribute(attr="wait_for_timeout"):
                yield "sleep", ast.unparse(node)
            case ast.Call(func=ast.Name(id="linger" | "async_linger")):
                yield "linger", ast.unparse(node)
            case ast.Call(func=ast.Name(id="wait_until" | "async_wait_until"), args=[_, *others], keywords=keywords):
                seconds = [*others[1:2], *(each.value for each in keywords if each.arg == "seconds")]
                if any(isinstance(each, ast.Constant) and each.value < MIN_SECONDS for each in seconds):
                    yield "deadline", ast.unparse(node)


@pytest.fixture(scope="module")
def found() -> Found:
    """What is found, by its kind and the file in tests."""
    result: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in (ROOT / "tests").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if any(word in text for word in ("sleep", "linger(", "wait_for_timeout", "wait_until(")):
            for kind, code in found_in(ast.parse(text)):
                result[kind][str(file.relative_to(ROOT / "tests"))].append(code)
    return result


def test_no_test_sleeps(found: Found) -> None:
    assert {path: each for path, each in found["sleep"].items() if path not in SLEEPERS} == {}
    assert found["sleep"].keys() == SLEEPERS.keys()


def test_nothing_takes_long_but_where_that_is_tried(found: Found) -> None:
    assert {path: each for path, each in found["linger"].items() if path not in LINGERERS} == {}
    assert found["linger"].keys() == LINGERERS.keys()


def test_no_deadline_is_one_that_a_busy_machine_passes(found: Found) -> None:
    assert found["deadline"] == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("from time import monotonic, sleep", "sleep"),
        ("from asyncio import sleep", "sleep"),
        ("import time\ntime.sleep(1)", "sleep"),
        ("async def f(): await asyncio.sleep(0)", "sleep"),
        ("wait(time.sleep)", "sleep"),
        ("visit.page.wait_for_timeout(1_000)", "sleep"),
        ("linger(1)", "linger"),
        ("async def f(): await async_linger(0.1)", "linger"),
        ("wait_until(f, 'it', 5)", "deadline"),
        ("wait_until(f, what='it', seconds=0.5)", "deadline"),
        ("async_wait_until(f, 'it', 59, 1)", "deadline"),
    ],
)
def test_a_wait_for_a_time_is_found(code: str, kind: str) -> None:
    assert [each for each, _ in found_in(ast.parse(code))] == [kind]


@pytest.mark.parametrize(
    "code", ["clock.sleep(1)", "wait_until(f, 'it')", "wait_until(f, 'it', 60, 1)", "wait_until(f, 'it', seconds=LONGEST)"]
)
def test_a_wait_for_an_event_is_none(code: str) -> None:
    assert not list(found_in(ast.parse(code)))
