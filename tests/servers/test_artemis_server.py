"""A real Artemis: what it keeps, and whom it lets in."""

from collections.abc import Callable
from typing import Any

import pytest
from harness.waiting import DEADLINE_SECONDS
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from servers.artemis import ArtemisServer, ArtemisSettings

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]


def test_a_kill_costs_no_message_and_the_address_stays(own_server: OwnServer) -> None:
    server = own_server(ArtemisServer).start()
    send(server.url, "QUEUE", b"one", b"two")
    address = server.url
    server.kill()
    assert not server.is_ready()
    server.start()
    assert server.url == address
    assert received(server.url, "QUEUE", 2) == [b"one", b"two"]


def test_a_paused_broker_is_not_ready_until_it_goes_on(own_server: OwnServer) -> None:
    server = own_server(ArtemisServer).start()
    server.pause()
    assert not server.is_ready()
    server.resume()
    assert server.is_ready()


def test_only_users_are_let_in(own_server: OwnServer) -> None:
    server = own_server(ArtemisServer, ArtemisSettings(users={"app": "secret"})).start()
    send(server.url, "QUEUE", b"one", user="app", password="secret")
    with pytest.raises(ConnectionException):
        send(server.url, "QUEUE", b"two", user="app", password="wrong")


def test_both_protocols_are_served_by_one_process(artemis: ArtemisServer) -> None:
    assert set(artemis.ports) == {"artemis", "mqtt"}
    assert artemis.is_ready()


def send(url: str, queue: str, *bodies: bytes, **login: str) -> None:
    connection = BlockingConnection(url, timeout=DEADLINE_SECONDS, **login)
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body, durable=True))
    connection.close()


def received(url: str, queue: str, count: int) -> list[bytes]:
    connection = BlockingConnection(url, timeout=DEADLINE_SECONDS)
    receiver = connection.create_receiver(queue, credit=count)
    messages = [receiver.receive() for _ in range(count)]
    bodies = [bytes(each.body) for each in messages]  # A body lies in the memory of its message.
    connection.close()
    return bodies
