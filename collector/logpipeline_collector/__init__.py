"""Reads partitions from JetStream and writes them into files, each line once."""
