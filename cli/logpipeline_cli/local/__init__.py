"""A pipeline on one machine: its folders, its processes, and the supervisor that keeps them
running.
"""
