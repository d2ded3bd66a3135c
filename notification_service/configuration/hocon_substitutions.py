"""Resolves `${key}` and `${?NAME}` in a parsed HOCON tree.

pyhocon only parses here: its own resolver loses `a = 6` under an unset `a = ${?NAME}`, and takes what a value overrides for
the value where a substitution leads to another one.
"""

import os
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from pyhocon import ConfigTree
from pyhocon.config_tree import ConfigList, ConfigQuotedString, ConfigSubstitution, ConfigValues, NoneValue

from resequencer.errors import ConfigurationError


class Absent(Enum):
    """The result of an optional substitution without a value: not even null."""

    ABSENT = 0


ABSENT: Final = Absent.ABSENT


class Substitutions:
    """Resolves substitutions within one root; keys come before environment variables, as HOCON requires. `variables` are all
    names used.
    """

    def __init__(self, root: ConfigTree) -> None:
        self._root = root
        self._under_way: list[ConfigValues] = []
        self._names: list[str] = []
        self.variables: set[str] = set()

    def resolve(self, value: Any, path: str) -> tuple[Any, tuple[str, ...]]:
        """The value with everything put in (ABSENT if that is nothing), and the environment variables that it took.

        Raises:
            ConfigurationError: Something is missing, runs in a circle or does not go together; it names `path`.
        """
        self._names.clear()
        try:
            return self._value(value), tuple(dict.fromkeys(self._names))
        except _Unresolvable as error:
            raise ConfigurationError(path, str(error)) from error

    def is_vanishing(self, value: Any) -> bool:
        """Return whether the value consists of substitutions only, none of which has a value."""
        return isinstance(value, ConfigValues) and not any(self.has(each.variable) for each in value.tokens)

    def has(self, variable: str) -> bool:
        """Return whether a key or an environment variable has this name."""
        return self._find(variable) is not ABSENT or variable in os.environ

    def _value(self, value: Any) -> Any:
        if isinstance(value, ConfigTree):
            items = ((raw.strip('"'), self._value(dict.get(value, raw))) for raw in value)
            return {name: item for name, item in items if item is not ABSENT}
        if isinstance(value, list):
            return [item for item in map(self._value, value) if item is not ABSENT]
        if isinstance(value, ConfigValues):
            return self._joined(value)
        if isinstance(value, ConfigQuotedString):
            return value.value
        return None if isinstance(value, NoneValue) else value

    def _joined(self, value: ConfigValues) -> Any:
        """Return the value of several tokens, at least one of them a substitution."""
        if any(each is value for each in self._under_way):
            raise _Unresolvable(f"{_text(value)} runs in a circle")
        self._under_way.append(value)
        try:
            parts = [(self._token(each), getattr(each, "ws", "") or "") for each in value.tokens]
        finally:
            self._under_way.pop()
        present = [(part, space) for part, space in parts if part is not ABSENT]
        below = ABSENT if value.overridden_value is None else value.overridden_value
        if not present:
            return below if below is ABSENT else self._value(below)
        joined = _join(present)
        if isinstance(joined, dict) and isinstance(below, ConfigTree | ConfigValues):
            lower = self._value(below)
            return _merge(lower, joined) if isinstance(lower, dict) else joined
        return joined

    def _token(self, token: Any) -> Any:
        if not isinstance(token, ConfigSubstitution):
            return self._value(token)
        found = self._below() if isinstance(token.instring, bool) else self._look_up(token.variable)
        if found is ABSENT and not token.optional:
            raise _Unresolvable(f"${{{token.variable}}} is neither a key nor an environment variable")
        return found

    def _look_up(self, variable: str) -> Any:
        self.variables.add(variable)
        found = self._find(variable)
        if found is self._under_way[-1]:
            return self._below()
        if found is ABSENT and variable in os.environ:
            self._names.append(variable)
            return os.environ[variable]
        return found if found is ABSENT else self._value(found)

    def _find(self, variable: str) -> Any:
        found: Any = self._root
        for name in ConfigTree.parse_key(variable):
            if isinstance(found, ConfigValues):
                found = self._value(found)
            found = dict.get(found, name, ABSENT) if isinstance(found, dict) else ABSENT
        return found

    def _below(self) -> Any:
        """Return the value that is being overridden: what a self-reference and `+=` mean."""
        value = self._under_way[-1].overridden_value
        return ABSENT if value is None else self._value(value)


class _Unresolvable(Exception):
    """The reason why a value cannot be resolved. The caller, which knows the key, turns it into a refusal."""


def _text(value: ConfigValues) -> str:
    return "".join(f"${{{each.variable}}}" for each in value.tokens if isinstance(each, ConfigSubstitution))


def _join(parts: list[tuple[Any, str]]) -> Any:
    """Join values: sections are merged, lists appended, other values concatenated."""
    values = [part for part, _ in parts]
    if len(values) == 1:
        return values[0]
    if all(isinstance(each, dict) for each in values):
        merged: dict[str, Any] = {}
        for each in values:
            merged = _merge(merged, each)
        return merged
    if all(isinstance(each, list | ConfigList) for each in values):
        return [item for each in values for item in each]
    if any(isinstance(each, dict | list | timedelta) for each in values):
        raise _Unresolvable("a list, a section or a duration cannot be joined with a text (put a text into double quotes)")
    return "".join(_written(each) + space for each, space in parts[:-1]) + _written(values[-1])


def _written(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        merged[name] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
