#!/bin/sh
# Exactly once for a group, by the last sequence in the key-value bucket.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
# Start as many as you like, on as many machines: each partition is one member's at a time.
exec logpipeline consume billing -f logpipeline.yaml --group --state kv --batch "${BATCH:-50}" --exec ./load.sh
