"""The real process on files and a real Infinispan: what only Infinispan has. See test_storage_on_a_server.py for the rest."""

from collections.abc import Callable

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService

from servers.infinispan import InfinispanServer

pytestmark = pytest.mark.slow

INFINISPAN = f"{NOTIFICATION}.storage.infinispan"


@pytest.mark.parametrize(
    ("overrides", "code", "expected"),
    [
        ([f"{INFINISPAN}.cache=expiring"], 1, "its entries expire"),
        ([f'{INFINISPAN}.url="http://user:pass@localhost"'], 3, f"{INFINISPAN}.url: contains a login"),
        ([f"{INFINISPAN}.tls.ca-file=nowhere.pem"], 3, f"{INFINISPAN}.tls.ca-file: nowhere.pem cannot be read"),
    ],
)
def test_what_waiting_cannot_mend_ends_the_service_with_the_remedy(
    service_on: Callable[..., OperatedService], infinispan: InfinispanServer, overrides: list[str], code: int, expected: str
) -> None:
    with infinispan.client() as client:
        client.post("/rest/v2/caches/expiring", json={"local-cache": {"expiration": {"lifespan": 1_000}}})
    service = service_on(infinispan, *overrides)
    service.tell("uow-1", 1)
    service.start()
    assert service.wait() == code
    assert expected in service.log
    assert "pass@" not in service.log
