"""The working directory as a place of users' own modules."""

import os
import sys


def see_working_directory() -> None:
    """Let `package.module:Class` names resolve from the working directory, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
