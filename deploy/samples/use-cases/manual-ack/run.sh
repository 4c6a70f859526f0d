#!/bin/sh
# Manual acknowledgement: a message is done when the command says so, and not before.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume loader -f logpipeline.yaml --ack each --exec ./load.sh
