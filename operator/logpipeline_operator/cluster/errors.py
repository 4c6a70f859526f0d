"""What Kubernetes' API answers instead of what was asked for."""

from __future__ import annotations


class ClusterError(Exception):
    """The API server refused: *status* is HTTP's, *reason* is Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"{status} {reason}: {message}")

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in (409, 429) or self.status >= 500


class NotFound(ClusterError):
    """The object, or its kind, is not there."""


class ClusterAway(Exception):
    """The API server did not answer; what was asked may or may not have been done."""
