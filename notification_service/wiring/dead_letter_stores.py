"""Opens the dead-letter store of a configuration, and names the person who acts."""

import os
import pwd

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import kafka_settings
from notification_service.configuration.kinds import only_with_one_kind
from notification_service.configuration.sections import TransportType
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign, Signature
from notification_service.connectors.files.settings import FileSettings
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.delivery.direct import find_receiver_of, open_dead_letters
from notification_service.wiring.file_dead_letters import FileDeadLetterStore
from resequencer.clock import instant_text
from resequencer.errors import ConfigurationError


def sign() -> Signature:
    """Return the signature of an action: the user of this process, and the instant."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    return Signature(name, instant_text(SystemClock().now()))


def open_store(configuration: Configuration, asked_for: AskedFor, sign: Sign = sign) -> DeadLetterStore:
    """Open the store of dead letters; nothing is written. `sign` tells who acts, by default the user of this process.

    Raises:
        ReceiverUnknown: No receiver of this name is delivered to straight from a topic.
        ConfigurationError: The service's own dead letters are not of the kind of its input, so they cannot be sent again.
    """
    receiver = asked_for.receiver or next((find_receiver_of(configuration, each) for each in asked_for.numbers), None)
    if receiver is not None:
        return open_dead_letters(configuration, receiver, asked_for, sign)
    ingress, notification = configuration.ingress, configuration.notification
    refusal = only_with_one_kind(configuration, "dead-letters")
    if refusal is not None:
        where = {
            TransportType.KAFKA: f"topic {notification.dead_letters_topic}",
            TransportType.FILE: f"file {notification.output_directory / 'dead-letters.jsonl'}",
            TransportType.JMS: f"queue {notification.jms.dead_letters_queue}",
            TransportType.MQTT: f"topic {notification.mqtt.dead_letters_topic}",
            TransportType.XMS: f"queue {notification.xms.dead_letters_queue}",
        }[notification.transport]
        raise ConfigurationError(refusal.path, f"{refusal.problem}. These dead letters are in the {where}")
    if notification.transport is TransportType.FILE:
        output = notification.output_directory
        return FileDeadLetterStore(FileSettings(ingress.topic, ingress.file_directory, output, ingress.max_record_bytes), sign)
    from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore

    return KafkaDeadLetterStore(kafka_settings(configuration), asked_for, sign)
