"""What a source and a sink of Kafka in a region have beside the transport."""
