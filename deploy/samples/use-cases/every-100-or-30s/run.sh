#!/bin/sh
# Acknowledge every 100 messages or every 30 seconds, whichever comes first.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume counter -f logpipeline.yaml --ack every=100,interval=${INTERVAL:-30s} --stdout
