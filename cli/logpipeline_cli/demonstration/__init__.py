"""The demo: a busy application, this machine's own logs, a screen, and the check."""
