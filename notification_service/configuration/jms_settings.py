"""Makes the settings of JMS sources and sinks, and of XMS sinks, from the configuration."""

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kinds import max_of_interval
from notification_service.connectors.jms.settings import (
    BrokerSettings,
    JmsSinkSettings,
    JmsSourceSettings,
    QueuePartition,
    XmsSinkSettings,
)


def jms_source_settings(configuration: Configuration, slot: int | None = None) -> JmsSourceSettings:
    """Return broker, partitions and window of the worker in this slot; no connection is made.

    The slots share the partitions out by their numbers; None has all of them.
    """
    jms = configuration.ingress.jms
    return JmsSourceSettings(
        BrokerSettings(jms.url, jms.user, jms.password, jms.heartbeat_ms),
        tuple(QueuePartition(each.queue, each.selector, each.is_exclusive) for each in jms.partitions),
        window=max_of_interval(configuration),
        message_id=jms.message_id,
        max_value_bytes=configuration.ingress.max_record_bytes,
        slot=slot or 0,
        slots=1 if slot is None else configuration.worker_count,
    )


def jms_sink_settings(configuration: Configuration) -> JmsSinkSettings:
    """Return broker and queues; no connection is made. The heartbeat is the source's."""
    jms = configuration.notification.jms
    return JmsSinkSettings(
        BrokerSettings(jms.url, jms.user, jms.password, configuration.ingress.jms.heartbeat_ms),
        jms.notifications_queue,
        jms.dead_letters_queue,
        jms.markers_queue,
    )


def xms_sink_settings(configuration: Configuration) -> XmsSinkSettings:
    """Return broker and queues; no connection is made. The heartbeat is that of a JMS source."""
    xms = configuration.notification.xms
    broker = BrokerSettings(xms.url, xms.user, xms.password, configuration.ingress.jms.heartbeat_ms)
    return XmsSinkSettings(broker, xms.notifications_queue, xms.dead_letters_queue)
