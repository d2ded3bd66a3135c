"""The loop that the service is compared with does the service's work, or the comparison is worth nothing."""

from collections.abc import Iterator

import pytest

from benchmarks import _bare_loop, throughput
from benchmarks._worker import Workload, made

pytestmark = pytest.mark.slow  # The simulator makes the envelopes in a process of its own.


@pytest.fixture(scope="module")
def workload() -> Iterator[Workload]:
    with made(2_000) as made_workload:
        yield made_workload


def test_the_bare_loop_and_the_worker_say_the_same(workload: Workload) -> None:
    assert throughput.find_difference(workload) is None


def test_a_loop_that_says_something_else_is_noticed(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bare_loop, "GROUP_STATUSES", frozenset())
    assert "differs" in str(throughput.find_difference(workload))


def test_a_loop_that_leaves_something_out_is_noticed(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "bare_loop", lambda *given: list(_bare_loop.bare_loop(*given))[:-1])
    assert "differs" in str(throughput.find_difference(workload))


def test_the_same_seed_gives_the_same_envelopes(workload: Workload) -> None:
    with made(2_000) as again:
        assert again.read() == workload.read()


def test_the_envelopes_are_what_the_tables_say(workload: Workload) -> None:
    lines = workload.read()
    assert len(lines) == pytest.approx(2_000, rel=0.05)
    assert sum(map(len, lines)) / len(lines) == pytest.approx(1_200, rel=0.2)
