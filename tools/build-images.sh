#!/usr/bin/env bash
# Build the images of the broker, the operator and Spark with the container engine that is there.
# The base image is pulled and named by its digest, which is printed and is a label of the images.
#   BASE=registry.example/python:3.13-slim   another base image, with Python 3.13; one named by digest is not looked up
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

base=${BASE:-python:3.13-slim}
case $base in
  *@sha256:*) ;;
  *)
    "$engine" pull --quiet "$base" >/dev/null || exit 1
    found=$("$engine" image inspect --format '{{index .RepoDigests 0}}' "$base") || exit 1
    case $found in
      *@sha256:*) base=$found ;;
      *) echo "build-images: $engine has no digest of $base ($found); name one: BASE=name@sha256:..." >&2; exit 1 ;;
    esac
    ;;
esac
echo "base image: $base"

arguments=(--build-arg "BASE=$base" --build-arg "VERSION=$version" --build-arg "REVISION=$revision")

for part in broker:broker_image/Dockerfile operator:operator/Dockerfile spark:spark/Dockerfile; do
  image="${prefix}supercluster/${part%%:*}:$version"
  echo "building $image with $engine"
  "$engine" build "${arguments[@]}" --file "${part#*:}" --tag "$image" . || exit 1
  if [ -n "${PUSH:-}" ]; then "$engine" push "$image" || exit 1; fi
done
