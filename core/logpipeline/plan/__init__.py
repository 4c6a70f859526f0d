"""What JetStream should hold for a pipeline, what it holds, and the way from one to the other."""
