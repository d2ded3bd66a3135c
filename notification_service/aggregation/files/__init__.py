"""A store in files: commands in partition files, values in one SQLite file, output as numbered lines."""
