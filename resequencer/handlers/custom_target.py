"""The adapter around a user's own target type, `package.module:callable`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from domain.errors import ConfigurationError, PermanentError, TransientError, words_of
from resequencer.handlers.produced_report import ProducedReport
from resequencer.payment_data import PaymentData

_read = msgspec.json.Decoder(dict[str, Any], float_hook=float).decode
"""A number beyond the range of a float becomes infinite: without the hook it would fail every later call for its unit."""


class CustomTarget:
    """Hands the user's callable the produced report as plain Python objects, fresh for each call, and takes bytes."""

    def __init__(self, name: str, function: Callable[[dict[str, Any]], object], produced: ProducedReport) -> None:
        self._name = name
        self._function = function
        self._produced = produced

    def __call__(self, report: bytes, data: PaymentData) -> bytes:
        """What the callable returns.

        Raises:
            TransientError: The callable raised it (or `DependencyUnavailable`): the same call may succeed later.
            PermanentError: The callable raised anything else or returned no bytes, or the payment data cannot be read.
        """
        mapping = self._mapping(report, data)
        try:
            value = self._function(mapping)
        except (TransientError, KeyboardInterrupt):
            raise
        except BaseException as error:  # Foreign code may raise anything; it costs its envelope, not the worker.
            if type(error) is PermanentError:
                raise
            raise PermanentError(f"{self._name} raised {words_of(error)}") from error
        if not isinstance(value, bytes):
            raise PermanentError(f"{self._name} returned {type(value).__name__} instead of bytes")
        return b"".join((value,))  # Of a type of its own, such as numpy's, it could not be stored.

    def _mapping(self, report: bytes, data: PaymentData) -> dict[str, Any]:
        try:
            return _read(self._produced(report, data))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PermanentError(f"the payment data for {self._name} cannot be read: {error}") from error


def import_callable(name: str, path: str) -> Callable[[dict[str, Any]], object]:
    """What `package.module:callable` names; `path` is the key for refusals.

    Raises:
        ConfigurationError: It cannot be imported, is not there, or cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Importing runs foreign code, which may raise anything.
        problem = f"{name!r} cannot be imported ({words_of(error)}); is its package on the Python path?"
        raise ConfigurationError(path, problem) from error
    if not callable(found):
        raise ConfigurationError(path, f"{name!r} is a {type(found).__name__}; name a function that takes the mapping")
    function: Callable[[dict[str, Any]], object] = found
    return function
