"""Checks before anything starts that this machine has what Spark needs."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

JAVA_MIN = 17
_PACKAGES = ("pyspark", "pyarrow", "obstore")


def missing() -> str:
    """Return a sentence that names what is missing here and how to get it; empty if nothing is
    missing.
    """
    lacking = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{', '.join(lacking)} is not installed: pip install 'logpipeline[spark]'"
    if not has_java():
        return (
            f"there is no Java on this machine, and Spark needs version {JAVA_MIN} or later: "
            f"install it (Debian: openjdk-{JAVA_MIN}-jre-headless)"
        )
    return ""


def has_java() -> bool:
    """Return whether there is a Java on this machine."""
    home = os.environ.get("JAVA_HOME")
    is_at_home = bool(home) and (Path(home or "") / "bin" / "java").exists()
    return is_at_home or shutil.which("java") is not None
