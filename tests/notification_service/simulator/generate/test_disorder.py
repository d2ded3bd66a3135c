from collections import Counter
from random import Random

import pytest

from notification_service.simulator.generate.disorder import Chances, Fate, Rates, disordered

NONE = Rates(0, 0, 0)


def chances(seed: int = 1) -> Chances:
    return Chances(Random(seed), Random(f"{seed}/conflicts"))


def order(count: int, window: int, rates: Rates = NONE, seed: int = 1) -> list:
    return list(disordered(range(count), window=window, rates=rates, chances=chances(seed)))


def test_a_window_of_nothing_keeps_the_order():
    assert [each.item for each in order(500, window=0)] == list(range(500))


@pytest.mark.parametrize("window", [1, 7, 200])
def test_nothing_moves_further_than_the_window(window: int):
    places = [each.item for each in order(5_000, window)]
    assert sorted(places) == list(range(5_000))
    assert max(abs(place - item) for place, item in enumerate(places)) <= window
    assert places != sorted(places) or window == 1


def test_no_more_than_the_window_is_held():
    drawn = 0

    def items():
        nonlocal drawn
        while drawn < 10_000:
            yield drawn
            drawn += 1

    for given, _ in enumerate(disordered(items(), window=50, rates=NONE, chances=chances())):
        assert drawn - given <= 52


def test_the_rates_are_kept_within_bounds():
    copies = order(50_000, window=10, rates=Rates(duplicates=0.1, losses=0.05, late=0.02))
    fates = Counter(each.fate for each in copies)
    assert fates[Fate.LOST] == pytest.approx(2_500, rel=0.1)
    assert fates[Fate.LATE] == pytest.approx(1_000 * 1.2, rel=0.15)
    assert len(copies) - 50_000 == pytest.approx(47_500 * 0.1, rel=0.1)


def test_a_lost_item_has_no_copies_and_each_knows_how_many_there_are():
    copies = order(20_000, window=30, rates=Rates(duplicates=0.3, losses=0.3, late=0.3))
    counted = Counter(each.item for each in copies)
    assert set(counted) == set(range(20_000))
    assert all(counted[each.item] == each.copies for each in copies)
    assert all(each.copies == 1 for each in copies if each.fate is Fate.LOST)


@pytest.mark.slow
def test_the_duplicate_of_a_late_item_is_late():
    copies = order(20_000, window=30, rates=Rates(duplicates=1, losses=0, late=0.5))
    fates: dict[int, list[Fate]] = {}
    for each in copies:
        fates.setdefault(each.item, []).append(each.fate)
    assert {len(each) for each in fates.values()} == {2}
    assert sum(each == [Fate.LATE, Fate.LATE] for each in fates.values()) > 9_000


def test_a_share_of_the_items_is_contradicted_once_and_nothing_else_moves_for_it():
    rates = Rates(0.1, 0.1, 0.1)
    plain, with_conflicts = order(20_000, 50, rates), order(20_000, 50, rates._replace(conflicts=0.1))
    contradicting = [each for each in with_conflicts if each.contradicts]
    assert len(contradicting) == pytest.approx(18_000 * 0.1, rel=0.1)
    assert len({each.item for each in contradicting}) == len(contradicting)
    assert [each.item for each in with_conflicts if not each.contradicts] == [each.item for each in plain]


@pytest.mark.slow
def test_what_is_contradicted_is_not_lost_and_late_altogether_or_not_at_all():
    fates: dict[int, set[Fate]] = {}
    copies: Counter[int] = Counter()
    for each in order(20_000, 50, Rates(0.5, 0.2, 0.4, 1)):
        fates.setdefault(each.item, set()).add(each.fate)
        copies[each.item] += 1
        assert each.copies in (1, 2, 3)
    assert set(map(frozenset, fates.values())) == {frozenset({fate}) for fate in Fate}
    assert all((copies[item] == 1) == (each == {Fate.LOST}) for item, each in fates.items())


def test_a_contradiction_comes_first_as_often_as_second():
    first: dict[int, bool] = {}
    for each in order(10_000, 50, Rates(0, 0, 0, 1)):
        first.setdefault(each.item, each.contradicts)
    assert sum(first.values()) == pytest.approx(5_000, rel=0.1)
