"""What users name as `package.module:name` is imported, and a place that was given up is answered with the new one."""

import asyncio
import functools
import inspect
import re
from pathlib import Path

import pytest

from notification_service import api
from resequencer.errors import PermanentError
from resequencer.users_code import failure_of, import_named, is_async, refuse_awaitable


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text)


def test_a_name_may_have_dots(write):
    write("users_first", "class A:\n    class B:\n        here = 7\n")
    assert import_named("users_first:A.B.here") == 7


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("from domain.envelope import DataEnvelope", "notification_service.api"),
        ("from resequencer.handlers.port import Marks", "notification_service.api"),
        ("import storage.port", "notification_service.api"),
        ("from pipeline.lookups.spec import LookupSpec", "notification_service.jobs.lookups.spec"),
    ],
)
def test_an_import_from_a_place_of_before_is_refused_with_the_new_place(write, line, place):
    write("users_old", f"{line}\n")
    with pytest.raises(ImportError, match=rf"there is no \S+ any more: import from {re.escape(place)} instead"):
        import_named("users_old:x")


def test_what_else_is_missing_is_named_as_it_is(write):
    write("users_lacking", "import domain_of_theirs\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'domain_of_theirs'"):
        import_named("users_lacking:x")


@pytest.mark.parametrize(
    ("error", "text"), [(asyncio.CancelledError(), "it raised CancelledError"), (KeyError("a"), "it raised KeyError: 'a'")]
)
def test_an_error_is_named_by_its_type_and_its_text_if_it_has_one(error, text):
    assert str(failure_of("it", error)) == text


def test_the_place_for_users_has_what_it_names():
    assert [each for each in api.__all__ if not hasattr(api, each)] == []


async def waiting(*_):
    return None


async def yielding(*_):
    yield None


def direct(*_):
    return waiting()


@functools.wraps(waiting)
def wrapping(*given):
    return asyncio.run(waiting(*given))


class Waiting:
    async def __call__(self, mapping):
        return mapping

    async def handle(self, event):
        return event

    @classmethod
    async def made(cls, event):
        return event

    @staticmethod
    async def plain(event):
        yield event


@pytest.mark.parametrize(
    "function",
    [
        *(waiting, yielding, Waiting(), Waiting().handle, Waiting.made, Waiting.plain),
        *(functools.partial(waiting, 1), functools.partial(functools.partial(Waiting().handle)), functools.partial(Waiting())),
    ],
)
def test_what_is_to_be_awaited_is_known_before_it_is_called(function):
    assert is_async(function)


@pytest.mark.parametrize(
    "function", [direct, wrapping, Waiting, len, str.upper, functools.partial(direct), lambda: None, functools.lru_cache(direct)]
)
def test_what_is_called_as_it_is_is_known_too(function):
    assert not is_async(function)


@pytest.mark.skipif(not hasattr(inspect, "markcoroutinefunction"), reason="Python 3.12 brings the mark")
def test_a_function_may_be_marked_as_one_that_is_to_be_awaited():
    assert is_async(inspect.markcoroutinefunction(lambda: waiting()))


@pytest.mark.parametrize(("answer", "kind"), [(direct, "coroutine"), (yielding, "async_generator")])
def test_an_answer_that_should_have_been_awaited_is_refused_with_the_remedy(answer, kind):
    with pytest.raises(PermanentError, match=f"^handler a:B returned an object of type {kind}, .* define it with async def"):
        refuse_awaitable("handler a:B", answer())
    refuse_awaitable("handler a:B", [])
