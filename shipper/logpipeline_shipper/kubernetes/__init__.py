"""What Kubernetes says of this node's pods: labels, and who is excluded. Lines flow without it."""
