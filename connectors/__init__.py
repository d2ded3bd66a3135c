"""Where records come from and notifications go: the transport port, and the file transport."""
