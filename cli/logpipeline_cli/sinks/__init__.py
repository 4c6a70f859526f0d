"""Copies the lines of a pipeline's streams into other systems, one module for each kind of them."""
