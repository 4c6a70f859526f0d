#!/bin/sh
# Full history, then live: all that is stored, and then what comes.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume index -f logpipeline.yaml --deliver all --stdout
