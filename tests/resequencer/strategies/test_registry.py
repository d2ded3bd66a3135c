"""The registry of strategies: the names of Icon's IPF documentation, our own, and a user's own class."""

import sys
from types import ModuleType

import pytest
from harness.driving import drive

from notification_service.payments.strategies import STRATEGIES, StrategySettings, make_strategy
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ConfigurationError
from resequencer.strategies.port import StrategyState
from resequencer.strategies.sequence import StrictSequence


def test_the_registry_has_the_documented_four_and_ours():
    documented = {"FULL_PAIN001", "FULL_PAIN001_AND_CUSTOM_DATA", "FULL_PAIN001_AND_PDS_DATA", "SEQUENCE"}
    assert set(STRATEGIES) == documented | {"STRICT_SEQUENCE", "COMPLETE", "PREVIOUS", "WINDOW"}


def test_the_keys_are_part_of_the_name_that_states_carry():
    settings = StrategySettings("FULL_PAIN001_AND_CUSTOM_DATA", custom_data_keys=("A", "B"))
    assert make_strategy(settings).name == "FULL_PAIN001_AND_CUSTOM_DATA[A,B]"


class Everything(StrictSequence):
    """A user's strategy that handles every envelope but number 13."""

    def __init__(self, settings):
        self.settings = settings

    def accepts(self, state, envelope):
        if envelope.sequence == 13:
            raise ValueError("unlucky")
        return True


class Unstorable(Everything):
    """A user's strategy whose state cannot be stored."""

    def handled(self, state, envelope):
        return object() if envelope.sequence == 13 else state

    def accepts(self, state, envelope):
        return True


class Mute:
    """A user's class that implements half of the methods."""

    needs_sequence, gathers, state_type = False, False, StrategyState

    def __init__(self, settings):
        self.settings = settings

    def initial(self):
        return StrategyState()


class WithoutBeginning(Everything):
    """A user's class that fails in its first method."""

    def initial(self):
        raise ZeroDivisionError


class WithoutState(Everything):
    state_type = dict


@pytest.fixture
def users_module(monkeypatch):
    module = ModuleType("users_own")
    module.Everything, module.WithoutState, module.Unstorable = Everything, WithoutState, Unstorable
    module.Mute, module.WithoutBeginning = Mute, WithoutBeginning
    monkeypatch.setitem(sys.modules, "users_own", module)


@pytest.mark.usefixtures("users_module")
def test_a_users_own_strategy_is_found_by_module_and_class(envelopes):
    unit = drive("users_own:Everything")
    unit.arrive(envelopes(5), envelopes(2))
    assert unit.sequences == [5, 2]


@pytest.mark.usefixtures("users_module")
def test_a_users_strategy_that_raises_costs_one_dead_letter(envelopes):
    unit = drive("users_own:Everything")
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]
    assert [(each.reason, each.error) for each in unit.dead] == [
        (DeadLetterReason.HANDLER_FAILED, "strategy users_own:Everything failed: ValueError: unlucky")
    ]


@pytest.mark.usefixtures("users_module")
def test_a_state_that_cannot_be_stored_costs_one_dead_letter(envelopes):
    unit = drive("users_own:Unstorable")
    unit.arrive(envelopes(12), envelopes(13), envelopes(14))
    assert unit.sequences == [12, 14]
    assert "object instead of its state type Lasts" in unit.dead[0].error


@pytest.mark.usefixtures("users_module")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("SEQUENZ", "use one of FULL_PAIN001"),
        ("users_own:Nothing", "AttributeError"),
        ("no_such_module:Class", "ModuleNotFoundError"),
        ("users_own:Mute", "it has no rank, observe, accepts, handled, forced, dead_lettered, is_late, missing"),
        ("users_own:WithoutBeginning", "ZeroDivisionError"),
        ("users_own:WithoutState", "no subclass of StrategyState"),
        (":Class", "package.module:Class"),
    ],
)
def test_a_strategy_that_cannot_be_used_is_refused_and_named(name, says):
    with pytest.raises(ConfigurationError, match=says) as refused:
        make_strategy(StrategySettings(name))
    assert name in str(refused.value)
    assert refused.value.path == "payment-status-notification.resequencer.strategy"
