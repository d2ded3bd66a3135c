"""`python -m notification_service` is `resequencer`."""

import sys

from notification_service.command_line import main

sys.exit(main())
