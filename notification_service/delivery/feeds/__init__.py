"""Feeds: where the notifications of a job come from."""
