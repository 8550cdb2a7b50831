#!/usr/bin/env bash
# Build the images of the broker and the operator with the container engine that is there.
#   BASE=registry.example/python:3.13-slim   another base image
#   REGISTRY=registry.example/team           prefix of the image names (default: none)
#   ENGINE=podman                            instead of the first one found
#   PUSH=1                                   push what was built
# Exit codes: 0 built, 1 a build failed, 2 no engine that answers.
set -euo pipefail
cd "$(dirname "$0")/.."

engine=${ENGINE:-}
if [ -z "$engine" ]; then
  for candidate in docker podman nerdctl buildah; do
    if command -v "$candidate" >/dev/null; then engine=$candidate; break; fi
  done
fi
if [ -z "$engine" ] || ! command -v "$engine" >/dev/null; then
  echo "build-images: no container engine found (${ENGINE:-docker, podman, nerdctl, buildah}); install one or name it by ENGINE=" >&2
  exit 2
fi

if ! "$engine" info >/dev/null 2>&1; then
  echo "build-images: $engine is installed but does not answer; start its service, or name another engine by ENGINE=" >&2
  exit 2
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
prefix=${REGISTRY:+${REGISTRY%/}/}

arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision")
if [ -n "${BASE:-}" ]; then arguments+=(--build-arg "BASE=$BASE"); fi

for part in broker:broker_image/Dockerfile operator:operator/Dockerfile; do
  image="${prefix}supercluster/${part%%:*}:$version"
  echo "building $image with $engine"
  "$engine" build "${arguments[@]}" --file "${part#*:}" --tag "$image" . || exit 1
  if [ -n "${PUSH:-}" ]; then "$engine" push "$image" || exit 1; fi
done
