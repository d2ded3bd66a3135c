"""Exactly once on files and SQLite: what restarts, crashes and forgetting may and may not do."""

from service_under_test import DEADLINE_MS, Service


def test_envelopes_leave_in_order(service: Service) -> None:
    service.tell("u", 4, 2, 1, 3)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4]


def test_nothing_is_told_twice_after_a_restart(service: Service) -> None:
    service.tell("u", 2, 1, 1, 4)
    service.run()
    for _ in range(3):
        service.restart()
        service.run()
    assert service.sequences("u") == [1, 2]
    service.tell("u", 3, 2)
    service.run()
    assert service.sequences("u") == [1, 2, 3, 4]
    assert service.dead == []
