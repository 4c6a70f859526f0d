"""Tables that read the streams: their progress, what they missed, and their state."""
