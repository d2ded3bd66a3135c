"""A pytest plugin for Thespian's own tests: a test that asks for `simpleSystemBase` gets our base."""

import sys
from types import ModuleType

import thespian.system
from thespian.system import simpleSystemBase

from guardian.actor_system import InProcessSystemBase

# A stand-in for the module, because the plain base looks its own name up in the real one when it calls its parent.
stand_in = ModuleType(simpleSystemBase.__name__)
vars(stand_in).update(vars(simpleSystemBase))
vars(stand_in)["ActorSystemBase"] = InProcessSystemBase
sys.modules[simpleSystemBase.__name__] = stand_in
vars(thespian.system)["simpleSystemBase"] = stand_in


def pytest_report_header() -> str:
    return "simpleSystemBase stands for ours"
