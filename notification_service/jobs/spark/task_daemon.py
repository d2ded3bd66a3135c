"""The daemon of Python's tasks on an executor of Spark: PySpark's own, which finds users' modules behind all that is installed.

Spark runs it as `python -m`, with `PYTHONSAFEPATH` set, so that no module of the working directory hides one of ours.
"""

import os
import sys

MODULES = "RESEQUENCER_USERS_MODULES"
"""The variable of the environment that names the directory of users' modules."""

if __name__ == "__main__":
    from pyspark.daemon import manager

    if MODULES in os.environ:
        sys.path.append(os.environ[MODULES])
    manager()
