#!/bin/sh
# Three deliveries at most, then among the dead letters: `logpipeline dlq ls`.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume parser -f logpipeline.yaml --group --on-error retry --exec ./parse.sh
