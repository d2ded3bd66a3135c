"""What a running service reports of itself, where the report lies, and how it reads."""
