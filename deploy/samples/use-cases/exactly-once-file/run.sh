#!/bin/sh
# Exactly once, by the last sequence in a file: what is delivered again is skipped.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
# The position is kept when the command has ended well, before the acknowledgement. What a crash in
# between leaves open comes again as the same batch, under the same name: the name makes it one.
exec logpipeline consume billing -f logpipeline.yaml --state billing.state --batch "${BATCH:-50}" --exec ./load.sh
