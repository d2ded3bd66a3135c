"""MQTT 5: a sink without a memory, and the connection that the bridge uses, too."""
