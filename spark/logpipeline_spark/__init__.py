"""Tables from the streams, with Spark."""
