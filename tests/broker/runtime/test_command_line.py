"""The broker as a process: its help, its exit codes, its signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
from tests.support.broker_forks import BrokerFork

from supercluster.broker.version import NATS_VERSION

COMMAND = [sys.executable, "-m", "supercluster.broker.main"]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("POD_NAME", "POD_IP")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user does."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=120, env=environment()
    )


def ended(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a broker that ends by itself."""
    log = folder / "output"
    log.unlink(missing_ok=True)
    return BrokerFork(arguments, log, environment()).wait(120), log.read_text()


def settings(folder: Path, **changes: Any) -> Path:
    document = {
        "superCluster": "demo",
        "identity": "id-1",
        "cluster": "east",
        "peers": {"east-0": "127.0.0.1:6222"},
        "metaVoters": ["east-0"],
        "ports": {"client": 0, "cluster": 0, "monitor": 0},
        **changes,
    }
    file = folder / "broker.json"
    file.write_text(json.dumps(document))
    return file


def test_help_explains_codes_and_environment() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for word in ("POD_NAME", "exit codes", "3 address in use", "--credentials", "--hosts-file"):
        assert word in shown.stdout


@pytest.mark.parametrize("flag", ["-v", pytest.param("--version", marks=pytest.mark.long)])
def test_the_version_is_told_as_by_nats_server_and_whose_it_is_beside_that(flag: str) -> None:
    shown = run(flag)
    assert shown.returncode == 0
    assert shown.stdout == f"nats-server: v{NATS_VERSION}\n"
    assert shown.stderr.startswith("supercluster-broker ")


def test_bad_arguments_and_settings_exit_with_2(tmp_path: Path) -> None:
    assert ended(tmp_path, "--data-dir", str(tmp_path))[0] == 2
    data = ["--data-dir", str(tmp_path / "data")]
    code, said = ended(tmp_path, "--config", str(tmp_path / "none.json"), "--name", "east-0", *data)
    assert code == 2
    assert "none.json" in said
    file = settings(tmp_path, limits={"maxPayload": 1})
    code, said = ended(tmp_path, "--config", str(file), "--name", "east-0", *data)
    assert code == 2
    assert "limits.maxPayload is no known field" in said
    code, said = ended(tmp_path, "--config", str(settings(tmp_path)), *data)
    assert code == 2
    assert "POD_NAME" in said
    code, said = ended(tmp_path, "--config", str(settings(tmp_path)), "--name", "east%0", *data)
    assert code == 2
    assert "--name is 'east%0'; % is not allowed in it" in said


def test_bad_credentials_exit_with_2(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"users": [{"user": "a", "pasword": "hush"}]}')
    code, said = ended(
        tmp_path,
        *("--config", str(settings(tmp_path)), "--data-dir", str(tmp_path / "data"), "--name", "east-0"),
        *("--credentials", str(tmp_path)),
    )
    assert code == 2
    assert "users[0].pasword" in said
    assert "hush" not in said


def test_an_address_in_use_exits_with_3(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = settings(tmp_path, ports={"client": port, "cluster": 0, "monitor": 0})
        code, said = ended(
            tmp_path, "--config", str(file), "--data-dir", str(tmp_path / "data"), "--name", "east-0"
        )
    assert code == 3
    assert str(port) in said


def test_a_data_directory_that_cannot_be_exits_with_4(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "data"):
        code, said = ended(
            tmp_path, "--config", str(settings(tmp_path)), "--data-dir", str(place), "--name", "east-0"
        )
        assert code == 4
        assert f"the data directory {place} can't be used" in said


async def test_a_broker_serves_until_sigterm_and_stops_cleanly(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("--config", str(settings(tmp_path)), "--data-dir", str(tmp_path / "data")),
        env={**environment(), "POD_NAME": "east-0", "POD_IP": "127.0.0.1"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(120):
            line = ""
            while "is ready" not in line:
                line = (await process.stderr.readline()).decode()
                assert line, "the broker ended before it was ready"
            port = int(line.rsplit(":", 1)[1])
            client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
            subscription = await client.subscribe("a")
            await client.publish("a", b"1")
            assert (await subscription.next_msg(timeout=30)).data == b"1"
            process.send_signal(signal.SIGTERM)
            rest = (await process.stderr.read()).decode()
            assert await process.wait() == 0
            await client.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "east-0 is leaving" in rest
    assert "east-0 has stopped" in rest
    assert "Traceback" not in rest


async def test_a_lone_broker_of_three_can_be_stopped_while_it_starts_and_says_what_is_wanting(
    tmp_path: Path,
) -> None:
    file = settings(tmp_path, metaVoters=["east-0", "east-1", "east-2"])
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("--config", str(file), "--data-dir", str(tmp_path / "data"), "--name", "east-0"),
        env=environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        port = 0
        async with asyncio.timeout(120):
            while not port:
                line = (await process.stderr.readline()).decode()
                assert line, "the broker ended by itself"
                if "monitoring on" in line:
                    port = int(line.rsplit(" ", 1)[1])
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/healthz?probe=startup") as response:
                    assert response.status == 503
                process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
