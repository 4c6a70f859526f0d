"""The plan: what JetStream should hold for a pipeline, what it holds, and the steps between."""
