#!/bin/sh
# Pull 100, acknowledge the last: one acknowledgement for all of them.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume loader -f logpipeline.yaml --ack all --batch 100 --exec ./load.sh
