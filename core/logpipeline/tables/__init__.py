"""Tables that read the streams: how far they are, what they miss, and how they stand."""
