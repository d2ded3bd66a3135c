"""Who may use the console: logins, roles, and the log of what people looked at and changed."""
