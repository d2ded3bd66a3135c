"""Keeps the output of the sink mqtt for `verify`: a subscription that begins with `simulate`, and files in the run directory."""

from contextlib import closing

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kinds import sinks_of
from notification_service.configuration.sections import TransportType
from notification_service.connectors.mqtt.topic_export import TopicExport
from notification_service.wiring.sink_attributes import CurrentSettings


def make_topic_export(configuration: Configuration) -> TopicExport:
    """Make the export of the topics that are in force now. Nothing is connected yet."""
    client_id = f"{configuration.storage.namespace}-verify"
    return TopicExport(
        CurrentSettings(configuration, None)(), client_id, configuration.notification.run_directory / "verify-mqtt"
    )


def subscribe_for_verify(configuration: Configuration) -> None:
    """Let the broker keep what the sink mqtt publishes from now on, if there is such a sink.

    Raises: as `TopicExport.subscribe`.
    """
    if TransportType.MQTT in sinks_of(configuration):
        with closing(make_topic_export(configuration)) as export:
            export.subscribe()
