"""What a user's own classes are looked for in: the working directory, as `python -m` does it."""

import os
import sys


def let_tasks_see_working_directory() -> None:
    """The tasks of a Spark job too; to be called before Spark is started."""
    seen = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(seen)
    sys.path.append(os.getcwd())
