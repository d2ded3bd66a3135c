"""Where records come from and where notifications go: the transport's port, the line format, and one folder per transport."""
