"""What can go wrong with a collector's folder, and what to do about it."""

from __future__ import annotations


class ArchiveBusy(Exception):
    """Another process writes this partition in this folder."""


class ArchiveBroken(Exception):
    """The state of the files cannot be read."""


class ArchiveFailed(Exception):
    """The disk failed; what it said to be written cannot be believed. The process has to end."""


class ArchiveFull(OSError):
    """The disk is full; nothing of the message was written, and it may be given again."""
