"""How the settings of a package say which keys of the configuration they are made of."""

from typing import NamedTuple

from domain.value_types import ValueType


class Key(NamedTuple):
    """Describes the field that it annotates as a key: `jitter_factor: Annotated[float, Key(Number(0, 1))]`.

    `path` is that of the key within its section, where it is not the name of the field in kebab case without `_ms`.
    """

    takes: ValueType
    path: str = ""


class Section(NamedTuple):
    """Describes the field that it annotates as a section at this path; the fields of its type, a struct, say the keys in it."""

    path: str


class OpenSection(NamedTuple):
    """Describes the field that it annotates as a section at this path that takes any key: a tuple of names and values."""

    path: str
