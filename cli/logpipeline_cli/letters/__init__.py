"""What ``logpipeline dlq`` is made of: finding dead letters, grouping them, sending them again."""
