"""The operator's way to each pipeline's NATS: credentials, a connection kept open, what is there."""
