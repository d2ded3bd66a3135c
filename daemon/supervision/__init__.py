"""The supervisor's process: worker slots, restarts, locks, logs, and what a worker died of."""
