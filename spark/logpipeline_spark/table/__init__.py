"""The table: files named by what they hold, and a manifest that says which of them count."""
