"""The reports of workers and delivery workers, and the addresses of a service: structure, files, and how they read as text."""
