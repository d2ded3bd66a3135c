"""How records are read and output is published: the line format, a folder for each transport, regions, and dead letters."""
