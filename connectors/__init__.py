"""How records are read and output is published: the transport's port, the line format, a folder per transport, and orders."""
