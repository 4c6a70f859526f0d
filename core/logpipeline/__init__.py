"""What all components share: wire contract, specification, NATS, and how to be observed."""
