"""Every module can be imported by itself, on each supported Python and without a warning."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import pyspark_supercluster
import supercluster.api
import supercluster.app
import supercluster.broker
import supercluster.localplane
import supercluster.reconcilers
import supercluster.spark

PACKAGES = (
    supercluster.api,
    supercluster.app,
    supercluster.broker,
    supercluster.localplane,
    supercluster.reconcilers,
    supercluster.spark,
    pyspark_supercluster,
)
PROGRAMS = ("__main__",)
"""Modules that do their work when they are imported."""


def modules() -> Iterator[str]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.rpartition(".")[2] not in PROGRAMS:
                yield found.name


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_module_of_a_package_can_be_imported(package: object) -> None:
    names = [name for name in modules() if name.startswith(f"{package.__name__}.")]  # type: ignore[attr-defined]
    for name in names:
        importlib.import_module(name)
    assert names or package is pyspark_supercluster
