"""The demo: a busy application, this machine's own logs, a screen that shows what happens, and the check."""
