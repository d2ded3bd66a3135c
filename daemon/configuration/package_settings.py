"""From a section of the configuration to the settings of a package."""

from typing import Any, TypeVar

import msgspec

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


def settings_from(settings: type[_Settings], section: msgspec.Struct, **computed: Any) -> _Settings:
    """Each field is the one of the same name in the section, unless it is among the `computed`; no default is used.

    Raises:
        AttributeError: A field is neither.
    """
    names = (name for name in settings.__struct_fields__ if name not in computed)
    return settings(**{name: getattr(section, name) for name in names}, **computed)
