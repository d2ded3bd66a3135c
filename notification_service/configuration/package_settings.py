"""Makes the settings of a package from a section of the configuration."""

from typing import Any, TypeVar

import msgspec

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


def settings_from(settings: type[_Settings], section: msgspec.Struct, **computed: Any) -> _Settings:
    """Copy each field from the field of the same name in the section, except for `computed` ones; defaults of fields are not
    used.

    Raises:
        AttributeError: A field is neither in the section nor computed.
    """
    names = (name for name in settings.__struct_fields__ if name not in computed)
    return settings(**{name: getattr(section, name) for name in names}, **computed)
