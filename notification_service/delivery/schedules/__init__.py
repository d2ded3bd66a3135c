"""Schedules: at each tick of a cron expression, a request for each key, to a topic or to a receiver of the ledger."""
