"""The configuration as it is shipped: `reference.conf` with every key, files to start from, and the notification settings."""
