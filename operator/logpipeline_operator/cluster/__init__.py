"""The client of Kubernetes: a few kinds, read and applied. Only this package has one."""
