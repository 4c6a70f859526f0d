"""Watching a pipeline: successive statuses as rows with rates, for `top` and `console`."""
