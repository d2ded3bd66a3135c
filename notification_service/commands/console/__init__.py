"""The command `console`: serves the console, and keeps the list of its users."""
