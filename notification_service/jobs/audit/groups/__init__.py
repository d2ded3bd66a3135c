"""The audit of groups: counts the payments of each message by the facts, and compares the reports with that."""
