"""What every component shares: the wire contract, the specification, NATS, and how to be observed."""
