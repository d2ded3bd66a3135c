"""What a command changes, without servers and files."""
