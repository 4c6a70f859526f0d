"""The files that a collector writes, and their state: a sink that is a folder."""
