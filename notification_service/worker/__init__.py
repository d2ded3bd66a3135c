"""The worker's process: its life from takeover to drain, and what it adds around the handlers."""
