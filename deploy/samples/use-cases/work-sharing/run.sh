#!/bin/sh
# Work sharing: any member takes any message; what one does not finish, another one gets.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume mailer -f logpipeline.yaml --group --ack each --stdout
