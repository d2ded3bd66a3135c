"""The command `demo`: the main job and the delivery of its notifications, start to end."""
