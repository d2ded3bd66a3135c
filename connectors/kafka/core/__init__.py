"""What is decided without a client: whose a partition is, what a topic takes, what options mean. Pure."""
