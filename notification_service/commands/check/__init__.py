"""The command `check`: the configuration, and the directories and servers that the service needs."""
