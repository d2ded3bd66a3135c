"""Annotations of settings with the configuration keys from which they are built."""

from typing import NamedTuple

from resequencer.keys.value_types import ValueType


class Key(NamedTuple):
    """Marks a field as a key: `jitter_factor: Annotated[float, Key(Number(0, 1))]`.

    `path` is the key's path within its section. The default is the name of the field in kebab case without `_ms`.
    """

    takes: ValueType
    path: str = ""


class Section(NamedTuple):
    """Marks a field as a section at this path. The field's type is a struct whose fields are the keys in the section."""

    path: str


class OpenSection(NamedTuple):
    """Marks a field as a section at this path that accepts any key. The field is a tuple of names and values."""

    path: str


class NamedSections(NamedTuple):
    """Marks a field as sections of one kind that users name: `receivers { tracker { … }, bank { … } }`.

    `defaults` is the path of a section beside it, which has the same keys: a section without a key gets its value from there.
    The field is a tuple of pairs of name and struct.
    """

    path: str
    defaults: str
