"""Answers a nats-server that asks who a client is (auth callout): pods say it by their tokens."""
