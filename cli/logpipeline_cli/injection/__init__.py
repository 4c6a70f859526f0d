"""Puts a shipper beside the containers of a workload, for files in a volume of the pod."""
