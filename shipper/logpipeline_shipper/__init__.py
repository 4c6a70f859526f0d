"""Reads the log files of a machine and publishes them, each line once and in order."""
