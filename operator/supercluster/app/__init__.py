"""The operator's process and the command line: settings, adapters for Kubernetes and brokers, metrics."""

from importlib import metadata

try:
    VERSION = metadata.version("supercluster")
except metadata.PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0.1.0"

__all__ = ["VERSION"]
