"""How a component shows what it does: log records, metrics, and whether it is alive and ready."""
