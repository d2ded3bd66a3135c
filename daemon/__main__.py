"""`python -m daemon` is `resequencer`."""

import sys

from daemon.command_line import main

sys.exit(main())
