"""Names the keys of a configuration that the schema does not know, each with the known key that was probably meant."""

from collections.abc import Iterator

from notification_service.configuration.hocon.parser import Plain, Resolved
from notification_service.configuration.schema import Schema, find_nearest
from notification_service.configuration.shown_value import shown_value
from resequencer.errors import ConfigurationError
from resequencer.keys.secret import is_secret_name


def unknown_keys(resolved: Resolved, schema: Schema) -> Iterator[ConfigurationError]:
    """Return a problem for each unknown key, and for each value that stands where a section is expected, or the reverse."""
    for path, raw in resolved.values.items():
        if path in schema.keys or schema.is_option(path) or _is_variable(path, resolved.variables):
            continue
        if schema.is_section(path):
            if raw != {}:
                yield ConfigurationError(path, f"{shown_value(path, raw)} stands where keys are expected: {path} {{ … }}")
            continue
        around = next((key for key in schema.keys if path.startswith(key + ".")), None)
        if around is None:
            yield ConfigurationError(path, _unknown(path, raw, find_nearest(path, schema.keys), schema))
        elif around not in resolved.values:
            yield ConfigurationError(around, f"is a section with keys; {schema.keys[around].expects} is expected")


def _is_variable(path: str, variables: frozenset[str]) -> bool:
    """Return whether this is a user's own key, outside of the service's, that a substitution refers to."""
    return any(path == each or path.startswith(each + ".") for each in variables)


def _unknown(path: str, raw: Plain, nearest: str | None, schema: Schema) -> str:
    expected = schema.keys[nearest] if nearest else None
    text = "***" if nearest and is_secret_name(nearest) else shown_value(path, raw, expected)
    return f"unknown key (value {text})" + (f"; the nearest known key is {nearest}" if nearest else "")
