"""The configuration of a service, loaded once at start."""

from collections.abc import Sequence
from pathlib import Path

from console.settings import HttpSettings, Listener, MetricsEndpoint, ProbesEndpoint
from daemon.configuration.constraints import doubtful_constraints, find_learned_timeout, stash_timeout_ms
from daemon.configuration.effective import EffectiveValue, effective_values
from daemon.configuration.package_settings import settings_from
from daemon.configuration.resolution import REFERENCE, ResolvedValues, resolve_values
from daemon.configuration.schema import SCHEMA, path_of
from daemon.configuration.sections import Ingress, Lookup, Notifications, Resequencers, Sections, TransportType
from daemon.configuration.shipped import find_shipped
from domain.errors import ConfigurationError

DEFAULT_FILE = Path("conf/application.conf")


class Configuration(Sections, frozen=True, kw_only=True):
    """Everything that can be configured, checked. `file` is the one it was read from.

    `effective` is what `check` prints; `warnings` are sentences about what is allowed but may not be meant.
    """

    file: Path
    effective: tuple[EffectiveValue, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_region(self) -> bool:
        """Whether source and sinks are not one transport: docs/regions.md."""
        ingress = self.ingress
        is_apart = self.notification.transports != (ingress.transport,) or bool(ingress.kafka_partitions)
        return is_apart or ingress.transport is TransportType.JMS

    @property
    def most_of_interval(self) -> int:
        """The most records of a cycle."""
        count = self.region.trigger_count if self.is_region else None
        return self.ingress.batch_size if count is None else count

    def only_with_files(self, command: str) -> ConfigurationError | None:
        """Return the text of a refusal: this command works on files only."""
        source, sinks = self.ingress.transport, self.notification.transports
        if source is not TransportType.FILE:
            why = "brokers remove old records of a topic by its retention"
            why = "a broker removes a message once it is acknowledged" if source is TransportType.JMS else why
            text = f"{source}: `{command}` works on files; {why}"
            return ConfigurationError(path_of(Ingress, "transport"), text)
        if self.is_region:
            text = f"{', '.join(sinks)}: `{command}` needs files as the only sink: only they tell what has left"
            return ConfigurationError(path_of(Notifications, "transport"), text)
        return None

    def only_with_one_kind(self, command: str) -> ConfigurationError | None:
        """Return the text of a refusal: this command needs input and first sink of one kind, both topics or both files."""
        source, sink = self.ingress.transport, self.notification.transport
        if source is sink and source is not TransportType.JMS:
            return None
        text = f"{sink}, with the input {source}: `{command}` works from kafka to kafka and from file to file"
        return ConfigurationError(path_of(Notifications, "transport"), text)


def load(file: Path = DEFAULT_FILE, overrides: Sequence[str] = ()) -> Configuration:
    """Read `file` over reference.conf, and `overrides` (`key=value`, the value in HOCON) over both.

    Raises:
        ConfigurationError: Something is refused; a `ConfigurationRefused` lists all there is.
    """
    found = find_shipped(file)
    resolved = resolve_values(found, overrides)
    values = resolved.values
    is_named = resolved.layers[path_of(Lookup, "directory")] != REFERENCE
    learned = find_learned_timeout(values)
    sections = SCHEMA.build(
        Sections,
        values,
        http=_http(resolved),
        lookups=SCHEMA.build(Lookup, values, is_required=is_named),
        resequencer=SCHEMA.build(Resequencers, values, stash_timeout_ms=stash_timeout_ms(values), learned=learned),
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
