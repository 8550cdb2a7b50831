"""Preflight over the migration link, between real processes: what keeps green from being reached, by code and remedy (BG-12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.blue_green import CREDENTIALS, PORT, BlueGreen
from tests.support.local_clusters import fresh_address, until

pytestmark = [pytest.mark.e2e, pytest.mark.covers("BG-12")]


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[BlueGreen]:
    made = BlueGreen(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


async def findings(sides: BlueGreen, **green: Any) -> dict[str, dict[str, str]]:
    """By code, of a green that is described otherwise in these fields."""
    body = sides.body()
    status, told = await sides.call("/preflight", body | {"green": body["green"] | green})
    assert status == 200, told
    assert all(found["remedy"] for found in told["findings"])
    return {found["code"]: found for found in told["findings"]}


async def test_preflight_says_why_green_is_not_reached_and_what_it_takes(sides: BlueGreen) -> None:
    """No link stays behind, and nothing crosses it while it is there."""
    another = {"migration.json": {"accept": [{"user": "far", "password": "another"}]}}
    await sides.start(1, green={"credentials": another})
    js = await sides.blue.js()
    await js.add_stream(name="S", subjects=["s.>"])
    (green,) = sides.green.running
    assert set(await findings(sides)) == {"CredentialsRefused"}
    status, told = await sides.call("", sides.body())
    assert (status, told["err_code"]) == (409, 19022)
    (green.folder / "migration.json").write_text(json.dumps(CREDENTIALS["migration.json"]))

    async def is_fine() -> bool:
        return await findings(sides) == {}

    await until(is_fine, "a green that has nothing against it")
    status, told = await sides.call("/preflight", sides.body())
    assert (told["streams"], told["clients"]) == (1, {"cannot": 0, "may": 1, "cannotNames": []})
    here, there = await sides.blue.client(), await sides.green.client()
    heard = await here.subscribe("core")
    await here.flush()
    document = await sides.blue.running[0].get("/varz")
    assert [link["remote_name"].partition("%")[0] for link in document["migration"]["links"]] == ["east-0"]
    assert (await sides.blue.running[0].get("/admin/identity"))["greens"] == [], "nothing leads there yet"
    await there.publish("core", b"does not cross")
    await there.flush()
    await here.publish("core", b"of this side")
    assert (await heard.next_msg(timeout=20)).data == b"of this side"

    dead = f"{fresh_address()}:{PORT}"
    other = await findings(sides, identity="id-elsewhere", addresses=[dead])
    assert dead in other["GreenUnreachable"]["message"]
    wrong = await findings(sides, identity="id-wrong")
    assert "it is of super-cluster green (id-green)" in wrong["GreenUnreachable"]["message"]
    assert set(await findings(sides, identity="id-blue")) == {"SameIdentity"}

    async def is_alone() -> bool:
        told = (await sides.blue.running[0].get("/varz"))["migration"]
        return bool(told["links"] == told["asked"] == [])

    await until(is_alone, "the end of the visits")

    reader, writer = await asyncio.open_connection(sides.blue.running[0].host, 4222)
    writer.write(b'CONNECT {"verbose": false, "protocol": 0, "name": "old", "lang": "c"}\r\nPING\r\n')
    while await reader.readline() != b"PONG\r\n":
        pass
    status, told = await sides.call("/preflight", sides.body(cannotFollow="refuse"))
    assert told["clients"]["cannotNames"] == ["old"]
    [found] = told["findings"]
    assert (found["code"], found["level"], found["subject"]) == ("ClientsCannotFollow", "refused", "old")
    assert (await findings(sides))["ClientsCannotFollow"]["level"] == "warn"
    writer.close()
    await writer.wait_closed()
