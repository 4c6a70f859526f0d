#!/bin/sh
# Back after a day: a durable consumer begins some time ago, and goes on where it was.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
# SINCE counts at the first start only: afterwards the durable knows better.
exec logpipeline consume nightly -f logpipeline.yaml --since "${SINCE:-24h}" --stdout
