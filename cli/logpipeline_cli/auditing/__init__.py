"""The parts of ``logpipeline audit``: log files, archived files, and comparing their lines."""
