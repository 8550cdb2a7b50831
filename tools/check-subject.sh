#!/bin/sh
# Judges the first line of a commit's message, as CONTRIBUTING.md says it is to be. Usage: check-subject.sh FILE
set -eu
subject=$(head -n 1 "$1")
case $subject in
    "Merge "* | "Revert "* | "fixup! "* | "squash! "*) exit 0 ;;
esac
if [ "${#subject}" -gt 72 ]; then
    echo "The subject has ${#subject} characters; at most 72 are allowed: $subject" >&2
    exit 1
fi
if ! printf '%s\n' "$subject" | grep -Eq '^[a-z0-9-]+: [a-z].*[^.]$'; then
    echo "The subject is to read \`area: imperative\`, without a full stop: $subject" >&2
    exit 1
fi
