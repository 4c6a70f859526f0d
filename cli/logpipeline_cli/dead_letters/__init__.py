"""The parts of ``logpipeline dlq``: find dead letters, group them, and send them again."""
