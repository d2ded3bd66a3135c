"""The working directory as a place of users' own modules."""

import os
import sys


def see_working_directory() -> None:
    """Let `package.module:Class` names resolve from the working directory, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def let_tasks_see_working_directory() -> None:
    """Make the working directory visible to the tasks of a Spark job. Call this before Spark is started."""
    seen = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(seen)
    sys.path.append(os.getcwd())
