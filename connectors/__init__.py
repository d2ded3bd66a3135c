"""The transport's port, the line format, and one folder per transport: how records are read and output is published."""
