"""What ``logpipeline audit`` is made of: log files, archived files, and comparing their lines."""
