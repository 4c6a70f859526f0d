"""Counts of lines, kept beside the table so that a look at a month needs no look at its lines."""
