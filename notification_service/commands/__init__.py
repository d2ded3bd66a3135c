"""The commands of the command line: one module for each, and what they share."""
