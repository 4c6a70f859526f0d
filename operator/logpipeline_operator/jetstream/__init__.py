"""The operator's way to each pipeline's NATS: credentials, an open connection, what is there."""
