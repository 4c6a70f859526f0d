#!/bin/sh
# New messages only: what is stored already is left alone, what comes is read.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume dashboard -f logpipeline.yaml --deliver new --stdout
