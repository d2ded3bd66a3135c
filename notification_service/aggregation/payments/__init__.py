"""The payments of a message: counted by status, and reported when all have their final one. Pure."""
