"""Python's cyclic garbage collector, as a process that handles envelopes needs it."""

import gc
from functools import cache

_YOUNG = 50_000
"""New containers before the collector looks for cycles among them: about what ten polls leave alive. Python's default is 700."""


@cache
def calm_collector() -> None:
    """Counts once in a process, so call it when its worker is composed: what exists by then stays, and is not looked at again.

    Values make no cycles here and actors leave none, so that the collector finds nothing but what a failure's traceback holds;
    with Python's defaults it looked all the same, six times per poll, and cost a worker 4 % of its time, an audit 8 %.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 100)
