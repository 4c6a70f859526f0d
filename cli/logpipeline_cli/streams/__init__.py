"""The commands about streams: their words, and how they reach a server without a resource."""
