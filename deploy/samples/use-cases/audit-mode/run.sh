#!/bin/sh
# Audit: each line is sent until it is acknowledged, before the next one.
# It gives up speed: a message, and a wait, for each line.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline ship -f logpipeline.yaml --data positions
