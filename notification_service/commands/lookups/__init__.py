"""The command `lookups`: builds, lists, shows and switches the lookups of the handlers."""
