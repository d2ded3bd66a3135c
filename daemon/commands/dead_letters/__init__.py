"""The command `dead-letters`: list, show, requeue and discard."""
