"""What users name in the configuration as `package.module:name`: how it is imported, made and called."""

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from functools import partial
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, TypeAlias, TypeVar

from resequencer.errors import ConfigurationError, PermanentError, words_of
from resequencer.event import Event

_T = TypeVar("_T")
_API, _LOOKUPS = "notification_service.api", "notification_service.jobs.lookups.spec"
_MOVED = (
    *("aggregation", "bridge", "connectors", "console", "daemon", "delivery", "domain", "enrichment", "pipeline", "simulator"),
    *("status", "resequencer.handlers", "storage.port"),
)
"""The packages and modules from which users imported before there was one place for it."""


def import_named(place: str) -> Any:
    """Return what `package.module:name` names; the name may have dots.

    Raises:
        ImportError: Its module imports from a place of before; the text names the new one.
        BaseException: Whatever the module raises when it is imported.
    """
    module, _, name = place.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        old = error.name or ""
        if not any(f"{old}.".startswith(f"{each}.") for each in _MOVED):
            raise
        place = _LOOKUPS if old.startswith("pipeline") else _API
        raise ImportError(f"there is no {old} any more: import from {place} instead, see docs/extending.md", name=old) from error
    for part in name.split("."):
        found = getattr(found, part)
    return found


def import_callable(name: str, key: str, wanted: str) -> Callable[..., Any]:
    """Import the callable `package.module:callable`. `key` is the configuration key for errors, `wanted` the expected kind.

    Raises:
        ConfigurationError: It does not exist, or cannot be imported or called.
    """
    try:
        found = import_named(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Importing runs foreign code, which may raise anything.
        problem = f"{name!r} cannot be imported ({words_of(error)}); is its package on the Python path?"
        raise ConfigurationError(key, problem) from error
    if not callable(found):
        raise ConfigurationError(key, f"{name!r} is a {type(found).__name__}; name {wanted}")
    function: Callable[..., Any] = found
    return function


def make_adapted(name: str, key: str, recipe: str, wanted: str, adapt: Callable[[Callable[..., Any]], _T]) -> _T:
    """Import a user's class, and return what `adapt` makes of it. `recipe` is the section of docs/extending.md about it.

    Raises:
        ConfigurationError: It cannot be imported, or `adapt` raises anything.
    """
    users_class = import_callable(name, key, wanted)
    try:
        return adapt(users_class)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Foreign code may raise anything.
        problem = f"{name!r} cannot be used: {words_of(error)}; see docs/extending.md, {recipe!r}"
        raise ConfigurationError(key, problem) from error


def call_guarded(who: str, call: Callable[[], _T], passes: type[Exception] | tuple[type[Exception], ...] = ()) -> _T:
    """Call a user's code, which `who` names in errors. What it raises costs its event, and not the worker.

    Raises:
        PermanentError: The code raised it, or anything else but what `passes`.
    """
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except passes:
        raise
    except BaseException as error:  # Foreign code may raise anything.
        if type(error) is PermanentError:
            raise
        raise failure_of(who, error) from error


def failure_of(who: str, error: BaseException) -> PermanentError:
    return PermanentError(f"{who} raised {words_of(error)}")


Way: TypeAlias = Callable[[str, Event, Callable[[], Any], Callable[[Any], Any]], Coroutine[Any, Any, Any]]
"""How a user's code is called beside the turn, `way(who, event, call, finish)`: calls it, waits for what it returns, and gives
that to `finish`, whose result it returns.

A `TransientError` passes, and so does the `CancelledError` of a task that is cancelled. Anything else is a `PermanentError`, also
a `KeyboardInterrupt`: no person interrupts another thread than the main one.
"""

FindWay: TypeAlias = Callable[[Callable[..., Any]], Way | None]
"""Returns the way to call a user's function; None if it is called within the turn."""


def within_the_turn(function: Callable[..., Any]) -> None:
    """Find no other way for any function."""
    del function


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call is to be awaited: of `async def`, of an async generator, or of what is marked as the former.

    The function may be a method, an object that can be called, or a partial of these.
    """
    while isinstance(function, partial):
        function = function.func
    return any(iscoroutinefunction(each) or isasyncgenfunction(each) for each in (function, type(function).__call__))


def refuse_awaitable(who: str, answer: object) -> None:
    """Refuse what a function has returned to be awaited although nothing shows that beforehand.

    Raises:
        PermanentError: It is a coroutine or the like.
    """
    if isinstance(answer, Awaitable | AsyncIterable):
        if isinstance(answer, Coroutine):
            answer.close()  # Otherwise Python warns that it was never awaited.
        problem = f"returned an object of type {type(answer).__name__}, and is not async itself: define it with async def"
        raise PermanentError(f"{who} {problem}, and await there what it returned")
