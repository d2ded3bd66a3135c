"""The real process on files and a real Redis: what only Redis has. See test_storage_on_a_server.py for the rest."""

from collections.abc import Callable
from contextlib import closing

import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from servers.redis import RedisServer

pytestmark = pytest.mark.slow

REDIS = f"{NOTIFICATION}.storage.redis"


def test_units_are_forgotten_once_the_service_was_caught_up_for_the_retention(
    service_on: Callable[..., OperatedService], redis_server: RedisServer, fresh_name: Callable[[str], str]
) -> None:
    name = fresh_name("forgotten")
    short = (f"{RESEQUENCER}.processing-timeout=500ms", f"{RESEQUENCER}.idle-timeout=1s", f"{RESEQUENCER}.retention=2s")
    service = service_on(redis_server, f"{NOTIFICATION}.storage.namespace={name}", *short)
    service.tell("uow-1", 1, 2)
    service.tell("uow-2", 2)
    service.start()
    with closing(redis_server.client()) as client:
        service.wait_until_idle()
        wait_until(lambda: not client.keys(f"{{{name}:*:unit:*"), "both are forgotten")
        left = client.keys(f"{{{name}:*")
        assert {key.rpartition(b":")[2] for key in left} == {b"header", b"pending", b"changes"}
        assert {client.ttl(key) for key in left} == {-1}
    assert service.stop() == 0
    assert (service.sequences("uow-1"), service.sequences("uow-2")) == ([1, 2], [2])


@pytest.mark.parametrize(
    ("overrides", "code", "expected"),
    [
        ([f"{REDIS}.password=wrong"], 1, "check storage.redis.username and password"),
        ([f'{REDIS}.url="redis://127.0.0.1:1?x=1"'], 3, f"{REDIS}.url: has options behind"),
        ([f"{REDIS}.tls.ca-file=nowhere.pem"], 3, f"{REDIS}.tls.ca-file: nowhere.pem cannot be read"),
    ],
)
def test_what_waiting_cannot_mend_ends_the_service_with_the_remedy(
    service_on: Callable[..., OperatedService], redis_server: RedisServer, overrides: list[str], code: int, expected: str
) -> None:
    service = service_on(redis_server, *overrides)
    service.tell("uow-1", 1)
    service.start()
    assert service.wait() == code
    assert expected in service.log
