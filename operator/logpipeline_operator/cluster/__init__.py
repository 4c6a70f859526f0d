"""Kubernetes as the operator sees it: a few kinds, read and applied. Nobody else has a client."""
