"""The handlers: they make notifications from payment data and process objects."""
