"""Lets a Spark job import a user's own classes from the working directory, as `python -m` does."""

import os
import sys


def let_tasks_see_working_directory() -> None:
    """Make the working directory visible to the tasks of a Spark job. Call this before Spark is started."""
    seen = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(seen)
    sys.path.append(os.getcwd())
