"""A pipeline on one machine: the folders it uses, the processes it consists of, and who keeps them
running.
"""
