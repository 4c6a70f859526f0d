"""The labels and exclusions of this node's pods, from the API server. Lines flow without it."""
