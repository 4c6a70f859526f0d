"""Reading and writing as fshipper's consumer did: a line per message, a file per host and day."""
