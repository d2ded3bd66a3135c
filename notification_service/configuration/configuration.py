"""The configuration of a service, loaded once at start."""

from collections.abc import Sequence
from pathlib import Path

from notification_service.configuration.constraints import doubtful_constraints
from notification_service.configuration.resolution import (
    REFERENCE,
    EffectiveValue,
    ResolvedValues,
    effective_values,
    find_shipped,
    resolve_values,
)
from notification_service.configuration.schema import SCHEMA, path_of, settings_from
from notification_service.configuration.sections import Lookup, Sections
from notification_service.console.access.settings import HttpSettings, Listener, MetricsEndpoint, ProbesEndpoint

DEFAULT_FILE = Path("conf/application.conf")


class Configuration(Sections, frozen=True, kw_only=True):
    """Everything that can be configured, checked. `file` is the one it was read from.

    `effective` is what `check` prints; `warnings` are sentences about what is allowed but may not be meant.
    """

    file: Path
    effective: tuple[EffectiveValue, ...] = ()
    warnings: tuple[str, ...] = ()


def load(file: Path = DEFAULT_FILE, overrides: Sequence[str] = ()) -> Configuration:
    """Read `file` over reference.conf, and `overrides` (`key=value`, the value in HOCON) over both.

    Raises:
        ConfigurationError: Something is refused; a `ConfigurationRefused` lists all there is.
    """
    found = find_shipped(file)
    resolved = resolve_values(found, overrides)
    values = resolved.values
    is_named = resolved.layers[path_of(Lookup, "directory")] != REFERENCE
    sections = SCHEMA.build(
        Sections,
        values,
        http=_http(resolved),
        lookups=SCHEMA.build(Lookup, values, is_required=is_named),
    )
    return settings_from(
        Configuration,
        sections,
        file=found,
        effective=effective_values(resolved),
        warnings=doubtful_constraints(values),
    )


def _http(resolved: ResolvedValues) -> HttpSettings:
    """With what only the layers tell: whether an operator has chosen a port."""

    def is_port_chosen(listener: type[Listener]) -> bool:
        return resolved.layers[path_of(listener, "port")] != REFERENCE

    values = resolved.values
    return SCHEMA.build(
        HttpSettings,
        values,
        is_port_chosen=is_port_chosen(HttpSettings),
        probes=SCHEMA.build(ProbesEndpoint, values, is_port_chosen=is_port_chosen(ProbesEndpoint)),
        metrics=SCHEMA.build(MetricsEndpoint, values, is_port_chosen=is_port_chosen(MetricsEndpoint)),
    )
