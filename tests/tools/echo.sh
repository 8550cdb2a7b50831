#!/usr/bin/env bash
# In pytest's place: prints its arguments, each between angle brackets.
printf '<%s>' "$@"
printf '\n'
