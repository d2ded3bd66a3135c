"""The command `dead-letters`: list, show, requeue, edit and discard."""
