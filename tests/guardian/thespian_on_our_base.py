"""A pytest plugin for Thespian's own tests: `simpleSystemBase` becomes our base."""

import sys
from types import ModuleType

import thespian.system
from thespian.system import simpleSystemBase

from guardian.actor_system import InProcessSystemBase

# This stands in for the module, because the plain base looks up its own name in the real one when it calls its parent.
stand_in = ModuleType(simpleSystemBase.__name__)
vars(stand_in).update(vars(simpleSystemBase))
vars(stand_in)["ActorSystemBase"] = InProcessSystemBase
sys.modules[simpleSystemBase.__name__] = stand_in
vars(thespian.system)["simpleSystemBase"] = stand_in


def pytest_report_header() -> str:
    return "simpleSystemBase stands for ours"
