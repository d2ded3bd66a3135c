"""The strategies of the service: the engine's, and the FULL_PAIN001 family, which waits for the parts of a pain.001."""

from collections.abc import Mapping

from notification_service.payments.envelope import PAIN_001_PARTS, custom_part, pds_part
from resequencer.in_flight import InFlight
from resequencer.strategies.completeness import Completeness
from resequencer.strategies.port import Strategy
from resequencer.strategies.registry import STRATEGIES as ENGINE_STRATEGIES
from resequencer.strategies.registry import Make, make_known_strategy
from resequencer.strategies.registry import StrategySettings as EngineStrategySettings

STRATEGY_KEY = "payment-status-notification.resequencer.strategy"


class StrategySettings(EngineStrategySettings, frozen=True):
    """As those of the engine, and the keys for which the FULL_PAIN001_AND_… strategies wait."""

    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()


def _complete_with_custom_data(settings: StrategySettings) -> Strategy:
    return _complete(settings.strategy, settings.custom_data_keys, [custom_part(each) for each in settings.custom_data_keys])


def _complete_with_pds_data(settings: StrategySettings) -> Strategy:
    return _complete(settings.strategy, settings.pds_data_keys, [pds_part(each) for each in settings.pds_data_keys])


def _complete(name: str, keys: tuple[str, ...], parts: list[str]) -> Strategy:
    return Completeness(f"{name}[{','.join(keys)}]" if keys else name, (*PAIN_001_PARTS, *parts))


STRATEGIES: Mapping[str, Make] = {
    "FULL_PAIN001": lambda settings: Completeness(settings.strategy, PAIN_001_PARTS),
    "FULL_PAIN001_AND_CUSTOM_DATA": _complete_with_custom_data,
    "FULL_PAIN001_AND_PDS_DATA": _complete_with_pds_data,
    **ENGINE_STRATEGIES,
}


def make_strategy(settings: StrategySettings, in_flight: InFlight | None = None) -> Strategy:
    """Return the configured strategy. During calls of a user's own strategy, the event is in `in_flight`.

    Raises:
        ConfigurationError: The strategy is unknown, or the user's class cannot be imported, created or used.
    """
    return make_known_strategy(settings, STRATEGY_KEY, in_flight, STRATEGIES)
