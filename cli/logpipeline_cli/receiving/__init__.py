"""Receivers: logs that are no files are appended to local files, durably, for a shipper to read."""
