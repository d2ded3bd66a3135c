"""What a client leaves open when it is closed: nothing."""

import pytest
from kafka import KafkaConsumer

from notification_service.connectors.kafka.client import make_client
from servers.kafka import KafkaServer


@pytest.mark.slow
def test_a_closed_client_closes_a_connection_with_unsent_bytes(kafka: KafkaServer) -> None:
    consumer = make_client("the brokers", KafkaConsumer, {"bootstrap_servers": kafka.bootstrap, "group_id": None})
    consumer.topics()
    [connection] = [each for each in consumer._client._manager._conns.values() if each.connected]
    socket = connection.transport._sock
    connection.transport._writing = True  # From here on no task sends what is written.
    connection.transport.write(b"unsent")
    consumer.close()
    assert socket.fileno() == -1
