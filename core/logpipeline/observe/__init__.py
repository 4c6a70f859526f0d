"""Observation of a component: log records, metrics, and whether it is alive and ready."""
