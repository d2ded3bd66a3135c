"""From payment data and process objects to notifications."""
