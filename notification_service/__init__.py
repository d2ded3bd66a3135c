"""What stands around the engine: events, notifications, delivery, groups, the console, the command line and its processes."""
