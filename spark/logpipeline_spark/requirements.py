"""What a machine needs to run Spark, asked before anything is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

JAVA_MIN = 17
_PACKAGES = ("pyspark", "pyarrow", "obstore")


def missing() -> str:
    """Return what of Spark's needs is missing here and how to get it, as a sentence; empty where
    nothing is.
    """
    lacking = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{', '.join(lacking)} is not installed: pip install 'logpipeline[spark]'"
    if not has_java():
        return (
            f"there is no Java here, and Spark needs one of version {JAVA_MIN} or later: install "
            f"it (Debian: openjdk-{JAVA_MIN}-jre-headless)"
        )
    return ""


def has_java() -> bool:
    """Return whether a Java would be found."""
    home = os.environ.get("JAVA_HOME")
    is_at_home = bool(home) and (Path(home or "") / "bin" / "java").exists()
    return is_at_home or shutil.which("java") is not None
