"""Links inside a cluster over TLS: names in certificates, and another authority while brokers run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority, Certificate

from supercluster.broker.monitor import views

NAME = "brokers.demo"
FILES = {"certFile": "tls.crt", "keyFile": "tls.key", "caFile": "ca.crt", "serverName": NAME}


def mount(folder: Path, shown: Certificate, *trusted: Authority) -> None:
    """Files as a mounted Secret has them."""
    folder.mkdir(exist_ok=True)
    (folder / "ca.crt").write_bytes(b"".join(each.file.read_bytes() for each in trusted))
    shutil.copy(shown.key, folder / "tls.key")
    shutil.copy(shown.cert, folder / "tls.crt")


class Pair:
    """Two brokers of one cluster, each with a folder of certificates."""

    def __init__(self, brokers: Any, folder: Path) -> None:
        self.brokers = brokers
        self.hosts = {name: brokers.address() for name in ("east-0", "east-1")}
        self.folders = {name: folder / f"tls-{name}" for name in self.hosts}

    async def start(self, name: str) -> Any:
        return await self.brokers.start_one(
            name, self.hosts, clusterTls=FILES, tls_dir=self.folders[name].absolute()
        )

    async def relink(self, one: Any, other: str) -> None:
        """Have both shake hands anew."""
        before = one.mesh.links[other]
        before.control.abort()
        await self.brokers.until(before.down.done, "the loss")
        await self.brokers.all_linked()
        assert one.mesh.links[other] is not before


@pytest.mark.covers("CL-3")
async def test_brokers_of_a_cluster_link_over_tls_with_files_of_a_folder(
    brokers: Any, tmp_path: Path
) -> None:
    ours, pair = Authority(tmp_path, "ours"), Pair(brokers, tmp_path)
    for name, folder in pair.folders.items():
        mount(folder, ours.sign(name, dns=[NAME]), ours)
        await pair.start(name)
    await brokers.all_linked()
    (row,) = views.routez(brokers.running[0], {})["routes"]
    assert row["tls"] is True


@pytest.mark.covers("CL-3")
async def test_whoever_dials_with_a_certificate_for_another_name_is_not_linked(
    brokers: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, pair = Authority(tmp_path, "ours"), Pair(brokers, tmp_path)
    mount(pair.folders["east-0"], ours.sign("application", dns=["application.demo"]), ours)
    mount(pair.folders["east-1"], ours.sign("east-1", dns=[NAME]), ours)
    for name in pair.hosts:
        await pair.start(name)
    await brokers.until(lambda: f"its certificate is not for {NAME}" in caplog.text, "the refusal")
    assert [brokers.links(each) for each in brokers.running] == [0, 0]


@pytest.mark.covers("CL-3", "CL-5")
async def test_an_authority_is_exchanged_while_brokers_run_and_the_former_one_is_refused_then(
    brokers: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new, pair = Authority(tmp_path, "old"), Authority(tmp_path, "new"), Pair(brokers, tmp_path)
    names = list(pair.hosts)
    shown = {(ca.name, name): ca.sign(name, dns=[NAME]) for ca in (old, new) for name in names}
    for name in names:
        mount(pair.folders[name], shown["old", name], old)
    first, second = [await pair.start(name) for name in names]
    await brokers.all_linked()
    stages = [("old", (old, new)), ("new", (old, new)), ("new", (new,))]
    for issuer, trusted in stages:
        for index, each in enumerate((first, second)):
            name = names[index]
            before = views.certificates(each)["clusterTls"]
            mount(pair.folders[name], shown[issuer, name], *trusted)
            each._refresh_certificates()
            assert views.certificates(each)["clusterTls"] != before
            await pair.relink(first, "east-1")
    told = [views.certificates(each)["clusterTls"] for each in (first, second)]
    assert told[0]["authorities"] == told[1]["authorities"]
    assert len(told[0]["authorities"]) == 1
    assert told[0]["certificate"] != told[1]["certificate"]
    # The one that is dialled refuses what only the former authority signed.
    mount(pair.folders["east-0"], shown["old", "east-0"], old, new)
    first._refresh_certificates()
    link = first.mesh.links["east-1"]
    caplog.clear()
    link.control.abort()
    await brokers.until(lambda: "no link with east-1" in caplog.text, "the refusal")
    assert [brokers.links(each) for each in brokers.running] == [0, 0]
