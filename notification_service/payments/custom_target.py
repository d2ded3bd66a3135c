"""The adapter around a user's own target type, `package.module:callable`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import msgspec

from notification_service.payments.enrichment import Enrichment
from notification_service.payments.produced_report import ProducedReport
from resequencer.errors import ConfigurationError, PermanentError, TransientError, words_of
from resequencer.payment_data import PaymentData
from resequencer.users_code import import_named

_read = msgspec.json.Decoder(dict[str, Any], float_hook=float).decode
"""A number beyond the range of a float becomes infinite. Without the hook it would fail every later call for its unit."""


class CustomTarget:
    """Calls the user's callable with the produced report as new plain Python objects, and expects bytes.

    If the callable has a parameter `lookups`, it also gets the lookups of the current release.
    """

    def __init__(self, name: str, function: Callable[..., object], produced: ProducedReport) -> None:
        self._name = name
        self._function = function
        self._call = function
        self._produced = produced

    def with_lookups(self, enrichment: Enrichment) -> CustomTarget:
        """Return the same target type with the lookups of another version."""
        bound = CustomTarget(self._name, self._function, self._produced)
        if _takes_lookups(self._function):
            bound._call = partial(self._function, lookups=enrichment)
        return bound

    def __call__(self, report: bytes, data: PaymentData) -> bytes:
        """Return the bytes that the callable returns.

        Raises:
            TransientError: The callable raised it (or `DependencyUnavailable`). The same call may succeed later.
            PermanentError: The callable raised anything else or returned no bytes, or the payment data cannot be read.
        """
        mapping = self._mapping(report, data)
        try:
            value = self._call(mapping)
        except (TransientError, KeyboardInterrupt):
            raise
        except BaseException as error:  # Foreign code may raise anything. That costs its envelope, not the worker.
            if type(error) is PermanentError:
                raise
            raise PermanentError(f"{self._name} raised {words_of(error)}") from error
        if not isinstance(value, bytes):
            raise PermanentError(f"{self._name} returned {type(value).__name__} instead of bytes")
        return b"".join((value,))  # A subclass of bytes, such as numpy's, could not be stored.

    def _mapping(self, report: bytes, data: PaymentData) -> dict[str, Any]:
        try:
            return _read(self._produced(report, data))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PermanentError(f"the payment data for {self._name} cannot be read: {error}") from error


def _takes_lookups(function: Callable[..., object]) -> bool:
    try:
        return "lookups" in signature(function).parameters
    except (TypeError, ValueError):  # The signature of a builtin may be unknown.
        return False


def import_callable(name: str, path: str, wanted: str) -> Callable[..., object]:
    """Import the callable `package.module:callable`. `path` is the configuration key for errors, `wanted` the expected kind.

    Raises:
        ConfigurationError: It does not exist, or cannot be imported or called.
    """
    try:
        found = import_named(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Importing runs foreign code, which may raise anything.
        problem = f"{name!r} cannot be imported ({words_of(error)}); is its package on the Python path?"
        raise ConfigurationError(path, problem) from error
    if not callable(found):
        raise ConfigurationError(path, f"{name!r} is a {type(found).__name__}; name {wanted}")
    function: Callable[..., object] = found
    return function
