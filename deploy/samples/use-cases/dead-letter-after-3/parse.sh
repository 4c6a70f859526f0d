#!/bin/sh
# Parses each line; one that cannot be parsed fails however often it is tried.
set -eu
line=$(cat)
case $line in *broken*) exit 1 ;; esac
printf '%s\n' "$line" >> parsed
