"""Groups of processes that share partitions: heartbeats, ownership, and the assignment.

Collectors and the readers of ``consume`` both are such groups, with records of their own.
"""
