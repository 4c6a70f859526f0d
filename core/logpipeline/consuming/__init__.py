"""Reads the streams of a pipeline in batches of messages, as a consumer with or without a state."""
