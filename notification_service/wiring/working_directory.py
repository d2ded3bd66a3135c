"""The working directory as a place of users' own modules, behind all that is installed: none of them hides one of ours."""

import os
import sys

from notification_service.jobs.spark.task_daemon import MODULES


def see_working_directory() -> None:
    """Let `package.module:Class` names resolve from the working directory, too."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def let_tasks_see_working_directory() -> None:
    """Make the working directory visible to this process and the tasks of a Spark job. Call this before Spark is started."""
    see_working_directory()
    os.environ[MODULES] = os.getcwd()
