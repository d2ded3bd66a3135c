"""`resequencer groups`: the payments of messages."""
