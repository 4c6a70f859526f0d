"""What of these tests is for a soak alone."""

from faults.settings import is_soak

# It needs a Loki, which takes ten minutes of two processors to build.
collect_ignore = [] if is_soak() else ["test_sinks_loki.py"]
