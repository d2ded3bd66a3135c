"""A client that cannot connect names the brokers; one that is closed leaves nothing open."""

from typing import Any

import pytest
from kafka import KafkaConsumer, errors

from guardian.ports import TransportUnavailable
from notification_service.configuration.kafka_client_options import CONSUMER_CLIENTS
from notification_service.connectors.kafka.client import make_client
from servers.kafka import KafkaServer


def test_brokers_that_do_not_answer_are_named_with_their_address_and_its_key() -> None:
    def make(**_: Any) -> None:
        raise errors.KafkaConnectionError("111 ECONNREFUSED")

    with pytest.raises(TransportUnavailable) as raised:
        make_client("the brokers", make, {"bootstrap_servers": "kafka-1:9093"})
    address = f"kafka-1:9093 ({CONSUMER_CLIENTS}.bootstrap.servers)"
    assert str(raised.value) == f"the brokers at {address}: KafkaConnectionError: 111 ECONNREFUSED"


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
