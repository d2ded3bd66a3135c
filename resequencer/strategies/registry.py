"""The registry of strategies: the four documented ones, STRICT_SEQUENCE, and a user's own by `package.module:Class`.

The documentation is the page "Resequencer" of Icon's IPF Notification Service (docs/design.md).
"""

from collections.abc import Callable

import msgspec

from resequencer.errors import ConfigurationError, words_of
from resequencer.in_flight import InFlight
from resequencer.strategies.completeness import Completeness
from resequencer.strategies.foreign import ForeignStrategy
from resequencer.strategies.port import Strategy
from resequencer.strategies.sequence import Sequence
from resequencer.strategies.strict_sequence import StrictSequence
from resequencer.users_code import import_named

_KEY = "payment-status-notification.resequencer.strategy"


class StrategySettings(msgspec.Struct, frozen=True):
    """The name of the strategy, and the keys for which the FULL_PAIN001_AND_… strategies wait."""

    strategy: str
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()


STRATEGIES: dict[str, Callable[[StrategySettings], Strategy]] = {
    "FULL_PAIN001": lambda settings: Completeness(settings.strategy),
    "FULL_PAIN001_AND_CUSTOM_DATA": lambda settings: Completeness(settings.strategy, custom_keys=settings.custom_data_keys),
    "FULL_PAIN001_AND_PDS_DATA": lambda settings: Completeness(settings.strategy, pds_keys=settings.pds_data_keys),
    "SEQUENCE": lambda _: Sequence(),
    "STRICT_SEQUENCE": lambda _: StrictSequence(),
}


def make_strategy(settings: StrategySettings, in_flight: InFlight | None = None) -> Strategy:
    """Return the configured strategy. During calls of a user's own strategy, the envelope is in `in_flight`.

    Raises:
        ConfigurationError: The strategy is unknown, or the user's class cannot be imported, created or used.
    """
    known = STRATEGIES.get(settings.strategy)
    return known(settings) if known else _foreign(settings, in_flight)


def _foreign(settings: StrategySettings, in_flight: InFlight | None) -> Strategy:
    module_name, colon, class_name = settings.strategy.partition(":")
    if not (module_name and colon and class_name):
        raise ConfigurationError(
            _KEY, f"{settings.strategy!r} is no strategy; use one of {', '.join(STRATEGIES)}, or package.module:Class"
        )
    try:
        made = import_named(settings.strategy)(settings)
        return ForeignStrategy(made, settings.strategy, in_flight)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Foreign code may raise anything.
        raise ConfigurationError(
            _KEY, f"{settings.strategy!r} cannot be used: {words_of(error)}; see docs/extending.md, 'Add a strategy'"
        ) from error
