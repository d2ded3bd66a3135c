"""The supervisor's process: worker slots, restarts, locks, logs, and the reasons of exits."""
