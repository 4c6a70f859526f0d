"""What ``logpipeline replay`` is made of: the question, reading, pace, and where lines go."""
