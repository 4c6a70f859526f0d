#!/bin/sh
# Redundant groups: two sets of collectors read everything, each for itself. While one is away, the
# other one goes on; the streams keep for each what it has not written yet.
# It gives up space: each line is in files twice.
# The server: NATS_URL.
set -eu
logpipeline apply -f logpipeline.yaml >&2
# Run it twice, here or on two machines: ./run.sh, and ./run.sh second.yaml
file=${1:-logpipeline.yaml}
exec logpipeline up -f "$file" --data "data/${file%.yaml}" --nats "$NATS_URL"
