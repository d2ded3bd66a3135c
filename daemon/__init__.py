"""The program: configuration, composition, the command line, the worker's process and its supervision."""
