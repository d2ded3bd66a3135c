"""Groups: the payments of messages, as pages and API show them, and what streams their completions."""
