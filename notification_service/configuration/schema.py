"""The schema of the configuration, as the fields of the sections describe it. The defaults are those of conf/reference.conf."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from notification_service.configuration.sections import Sections
from resequencer.errors import ConfigurationError
from resequencer.keys.configuration_key import Key, NamedSections, OpenSection, Section
from resequencer.keys.value_types import ValueType

Values = Mapping[str, Any]


class Constraint(msgspec.Struct, frozen=True):
    """The first of `keys` is the one that a refusal names; `problem` says why and what to do."""

    keys: tuple[str, ...]
    holds: Callable[[Values], bool]
    problem: str


class ConfigurationRefused(ConfigurationError):
    """One or more problems, each with its own path; the text has a line for each."""

    def __init__(self, problems: Sequence[ConfigurationError]) -> None:
        assert problems
        super().__init__(problems[0].path, problems[0].problem)
        self.args = ("\n".join(str(each) for each in problems),)
        self.problems = tuple(problems)


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Field(NamedTuple):
    """A field of a section that is a key or a section itself, with its full path."""

    name: str
    type: Any
    mark: Key | Section | OpenSection | NamedSections
    path: str


class Schema:
    """`keys` has all of them by their full paths, each with what it takes; `sections` by their types, `root` the first of them.

    The keys of `open_sections` are Kafka's. `named` has the paths of the sections that users name, each with the path of their
    defaults; `defaults` has the key with the default of each key in them. A struct may be the type of one section only.
    """

    def __init__(self, root: type[msgspec.Struct]) -> None:
        self.sections: dict[type[msgspec.Struct], tuple[Field, ...]] = {}
        self._describe(root, "")
        fields = [field for fields in self.sections.values() for field in fields]
        self.keys: Mapping[str, ValueType] = {each.path: each.mark.takes for each in fields if isinstance(each.mark, Key)}
        self.open_sections = tuple(each.path for each in fields if isinstance(each.mark, OpenSection))
        self.named: Mapping[str, str] = {
            each.path: each.path.removesuffix(each.mark.path) + each.mark.defaults
            for each in fields
            if isinstance(each.mark, NamedSections)
        }
        self.defaults: Mapping[str, str] = {}
        twice = [path for path, times in Counter(each.path for each in fields).items() if times > 1]
        assert not twice, f"{twice[0]} is described twice"

    def _describe(self, section: type[msgspec.Struct], prefix: str) -> None:
        assert section not in self.sections, f"{section} is two sections"
        self.sections[section] = tuple(_fields(section, prefix))
        for field in self.sections[section]:
            if isinstance(field.mark, Section):
                self._describe(field.type, f"{field.path}.")

    def path_of(self, section: type[msgspec.Struct], name: str) -> str:
        """Return the full path of the key or section of this field.

        Raises:
            LookupError: There is no such section or field, or the field is made of no key.
        """
        found = next((each.path for each in self.sections[section] if each.name == name), None)
        if found is None:
            raise LookupError(f"{section.__name__}.{name} is no key")
        return found

    def build(self, section: type[_Struct], values: Mapping[str, Any], **computed: Any) -> _Struct:
        """Build the section and the sections in it from typed values of all keys; `computed` are fields made otherwise."""
        fields = (each for each in self.sections[section] if each.name not in computed)
        return section(**{each.name: self._value(each, values) for each in fields}, **computed)

    def _value(self, field: Field, values: Mapping[str, Any]) -> Any:
        if isinstance(field.mark, Section):
            return self.build(field.type, values)
        if isinstance(field.mark, OpenSection):
            prefix = f"{field.path}."
            return tuple((path.removeprefix(prefix), value) for path, value in values.items() if path.startswith(prefix))
        if isinstance(field.mark, NamedSections):
            of_all, (_, section) = self.named[field.path], get_args(field.type)
            return tuple(
                (
                    name,
                    self.build(
                        section, {f"{of_all}.{key}": values[f"{field.path}.{name}.{key}"] for key in _below(of_all, values)}
                    ),
                )
                for name in names_below(field.path, values)
            )
        is_enum = isinstance(field.type, type) and issubclass(field.type, StrEnum)
        return field.type(values[field.path]) if is_enum else values[field.path]

    def with_names(self, paths: Collection[str]) -> "Schema":
        """Return this schema, also with the keys of the named sections that are among these paths."""
        defaults = {
            f"{section}.{name}.{key}": f"{of_all}.{key}"
            for section, of_all in self.named.items()
            for name in names_below(section, paths)
            for key in _below(of_all, self.keys)
        }
        found = copy(self)
        found.defaults = defaults
        found.keys = {**self.keys, **{path: self.keys[default] for path, default in defaults.items()}}
        return found

    def is_section(self, path: str) -> bool:
        """Return whether keys are below this path."""
        return path in (*self.open_sections, *self.named) or any(
            key.startswith(path + ".") for key in (*self.keys, *self.open_sections)
        )

    def is_option(self, path: str) -> bool:
        """Return whether this is a key in an open section."""
        return path.startswith(tuple(f"{each}." for each in self.open_sections))


def names_below(section: str, paths: Iterable[str]) -> list[str]:
    """Return the names of a section's parts that are among the paths, in their order."""
    return list(dict.fromkeys(path.partition(".")[0] for path in _below(section, paths)))


def _below(section: str, paths: Iterable[str]) -> list[str]:
    return [path.removeprefix(f"{section}.") for path in paths if path.startswith(f"{section}.")]


def find_nearest(path: str, known: Collection[str]) -> str | None:
    """Return the known key or option that was probably meant: the same name elsewhere, else a similar spelling."""
    last = path.rpartition(".")[2]
    namesakes = [key for key in known if key.rpartition(".")[2] == last]
    return next(iter(get_close_matches(path, namesakes, 1, 0.0) or get_close_matches(path, known, 1, 0.6)), None)


def _fields(section: type[msgspec.Struct], prefix: str) -> Iterator[Field]:
    for name, hint in get_type_hints(section, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Key | Section | OpenSection | NamedSections):
                types = [each for each in get_args(hint.__origin__) or (hint.__origin__,) if each is not type(None)]
                yield Field(name, types[0], mark, prefix + (mark.path or name.removesuffix("_ms").replace("_", "-")))


def settings_from(settings: type[_Struct], section: msgspec.Struct, **computed: Any) -> _Struct:
    """Copy each field from the field of the same name in the section, except for `computed` ones; defaults of fields are not
    used.

    Raises:
        AttributeError: A field is neither in the section nor computed.
    """
    names = (name for name in settings.__struct_fields__ if name not in computed)
    return settings(**{name: getattr(section, name) for name in names}, **computed)


SCHEMA = Schema(Sections)
path_of = SCHEMA.path_of
