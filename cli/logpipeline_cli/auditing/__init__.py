"""Compares files on the nodes with what is archived of them."""
