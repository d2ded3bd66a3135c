"""The command `status`: the report of a service, and the disk space of its files."""
