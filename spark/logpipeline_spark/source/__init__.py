"""The data source ``jetstream``: what to read is decided in the driver, reading is the tasks'."""
