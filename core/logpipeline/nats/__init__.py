"""Streams, consumers and connections of NATS JetStream, as this project uses them."""
