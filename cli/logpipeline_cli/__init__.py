"""The command `logpipeline`: every component, and what a human wants to see of them."""
