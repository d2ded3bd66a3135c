"""The memory for what handlers remember of producers' data is bounded in bytes."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from notification_service.lookups.shapes import ANY, SETTINGS
from notification_service.payments.enrichment import Lookups, SettingsAlone
from notification_service.payments.envelope import MAX_OBJECTS, PAIN_001
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.original import KEPT_BYTES, KEPT_PAYMENTS, LARGEST_KEPT_BYTES, Agents, Originals
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.process_object_handler import ProcessObjectHandler
from notification_service.payments.target_types import as_it_is
from resequencer.handler import Marks

MEGABYTE = "x" * 1_000_000


class Tables:
    version = "20261121T000000000Z"

    def find(self, table: str, key: bytes) -> bytes | None:
        return b'["ACCP",null,null,null]' if (table, key) == (SETTINGS, f"{ANY}\x1fF\x1fE".encode()) else None


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """Measure the memory that is still held for what was made within the context."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_names_of_events_and_flows_of_a_megabyte_are_not_remembered() -> None:
    """When names were remembered, they took 478 MB."""
    lookups = Lookups(Tables())
    with measured() as held:
        for number in range(250):
            assert lookups.find_setting("BANK_001", f"{number}{MEGABYTE}", "E") is None
            assert lookups.find_setting("BANK_001", "F", f"{number}{MEGABYTE}") is None
        assert lookups.find_setting("e" * 256, "F", "E") is not None
        assert held() < 100_000


def test_nor_are_they_by_the_handler_which_keeps_events_with_a_setting_prepared(envelope: Callable[..., Any]) -> None:
    handler = ProcessObjectHandler(SettingsAlone(NotificationSettings(())), as_it_is, 1_000_000)
    with measured() as held:
        for number in range(50):
            came = envelope((f"{number}{MEGABYTE}", "F", None))
            assert handler.handle(came, PaymentData(), Marks(), 0).unmatched == 1
        del came
        assert held() < 100_000


def test_many_short_names_are_remembered_in_some_megabytes() -> None:
    lookups = Lookups(Tables())
    with measured() as held:
        for number in range(6_000):
            lookups.find_setting("\U0001f600" * 256, "F" * 255, f"{number:0>255}")
        assert held() < 16_000_000


@pytest.mark.slow
def test_payments_are_remembered_by_what_they_take_names_and_empty_objects_included() -> None:
    originals = Originals(SettingsAlone(NotificationSettings(())))
    with measured() as held:
        for number in range(200):
            originals.get(PaymentData(mds=((f"{number}{MEGABYTE}", b"{}"),)))
            originals.get(PaymentData(mds=tuple((f"{number}-{each}", b"{}") for each in range(MAX_OBJECTS))))
        assert len(originals) == 0
        assert held() < 100_000


@pytest.mark.slow
def test_payments_as_large_as_are_kept_take_no_more_than_about_twice_the_bound() -> None:
    originals = Originals(SettingsAlone(NotificationSettings(())))
    with measured() as held:
        for number in range(KEPT_PAYMENTS):
            body = b'{"GrpHdr": {"MsgId": "%d", "Unknown": "%s"}}' % (number, b"x" * (LARGEST_KEPT_BYTES - 250))
            originals.get(PaymentData(mds=((PAIN_001, body),)))
        assert len(originals) > KEPT_BYTES // LARGEST_KEPT_BYTES - 2
        assert held() < 2 * KEPT_BYTES


def test_only_agents_that_say_little_are_remembered() -> None:
    lookups = Lookups(Tables())
    agents = Agents(lookups)
    with measured() as held:
        for number in range(4_096):
            lines = ["\u00fc" * 70] * 7
            address = {"AdrLine": lines, "StrtNm": "s" * 70, "BldgNm": "b" * 70}
            agent = {"FinInstnId": {"Nm": f"{number}" + "n" * 130, "PstlAdr": address}, "BrnchId": {"PstlAdr": address}}
            agents.filled(msgspec.Raw(msgspec.json.encode(agent)), None)
        assert held() < 1_000_000
        assert agents.filled(msgspec.Raw(b'{"FinInstnId": {"BICFI": "DEUTDEFF"}}'), None) is not None
