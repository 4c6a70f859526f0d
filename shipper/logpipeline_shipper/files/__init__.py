"""Finds log files and reads their bytes in order: the part of the shipper without a network."""
