"""Which process a `-sl` means, and what it says when there is none, with a table of processes of the test's own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from supercluster.broker.dropin import main
from supercluster.broker.dropin.signals import SignalError, is_server, send, servers

BY_SCRIPT = ("/usr/bin/python3.11", "/venv/bin/supercluster-broker", "-c", "a.conf")
BY_MODULE = ("python3", "-X", "dev", "-u", "-m", "supercluster.broker.main", "-js")


@pytest.mark.parametrize("words", [BY_SCRIPT, BY_MODULE, BY_MODULE[:-1]])
def test_servers_in_nats_servers_place_are_known_by_their_command_line(words: tuple[str, ...]) -> None:
    assert is_server((*words, ""))


@pytest.mark.parametrize(
    "words",
    [
        ("nats-server", "-js"),
        ("vim", "supercluster-broker"),
        ("timeout", "3", *BY_SCRIPT),
        ("/bin/sh", "-c", "supercluster-broker -js"),
        ("python3", "-c", "pass", "supercluster-broker"),
        ("python3", "-m", "pytest", "supercluster-broker"),
        (*BY_SCRIPT[:2], "--config", "broker.json", "--data-dir=/data"),
        (*BY_SCRIPT[:2], "-sl", "quit"),
        ("python3",),
        ("",),
    ],
)
def test_brokers_of_a_super_cluster_and_who_only_names_one_are_no_servers(words: tuple[str, ...]) -> None:
    assert not is_server(words)


def write(processes: Path, pid: int, words: tuple[str, ...]) -> None:
    (processes / str(pid)).mkdir()
    (processes / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


def test_servers_are_found_among_the_processes_but_for_this_one(tmp_path: Path) -> None:
    write(tmp_path, 30, BY_MODULE)
    write(tmp_path, 7, BY_SCRIPT)
    write(tmp_path, 8, ("vim", "supercluster-broker"))
    write(tmp_path, 9, ())  # One that ended, and that nobody has waited for.
    (tmp_path / "10").mkdir()  # One that is gone by now.
    write(tmp_path, 11, BY_SCRIPT)
    (tmp_path / "self").mkdir()
    assert servers(tmp_path, own=11) == [7, 30]
    with pytest.raises(SignalError, match="unable to resolve pid, try providing one"):
        servers(tmp_path / "not")


class Sent:
    """In place of the kernel."""

    def __init__(self, *running: int) -> None:
        self.running = running
        self.signals: list[tuple[int, int]] = []

    def __call__(self, text: str) -> list[tuple[int, int]]:
        self.signals.clear()
        send(text, lambda: self.running, self._kill)
        return self.signals

    def _kill(self, pid: int, number: int) -> None:
        if pid == 99:
            raise ProcessLookupError(3, "No such process")
        self.signals.append((pid, number))


def test_a_signal_goes_to_the_process_of_an_id_of_a_file_or_to_the_only_one(tmp_path: Path) -> None:
    sent = Sent(7)
    assert sent("stop=12") == [(12, signal.SIGKILL)]
    file = tmp_path / "pid"
    file.write_text("13\n")
    assert sent(f"reload={file}") == [(13, signal.SIGHUP)]
    assert sent("quit") == [(7, signal.SIGINT)]
    assert sent("term=") == [(7, signal.SIGTERM)]
    sent = Sent(7, 70, 8)
    assert sent("ldm=7*") == [(7, signal.SIGUSR2), (70, signal.SIGUSR2)]
    assert sent("reopen=*") == [(7, signal.SIGUSR1), (70, signal.SIGUSR1), (8, signal.SIGUSR1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo", 'unknown signal "foo"; it has to be one of stop, quit, term, reopen, reload, ldm'),
        ("", 'unknown signal ""'),
        ("RELOAD", 'unknown signal "RELOAD"'),
        ("quit=a=b", "invalid signal parameters: ['b']"),
        ("quit=-5", "invalid pid: -5"),
        ("quit=0", "invalid pid: 0"),
        ("quit=/nope", "invalid pid: /nope"),
        ("quit=x*", "invalid pid: x"),
        ("quit=99", 'signal "quit" 99: no such process'),
        ("quit", "multiple supercluster-broker processes running:\n7\n8"),
        ("quit=9*", "no supercluster-broker processes running with 9*"),
    ],
)
def test_what_can_not_be_sent_is_said_in_nats_servers_words(text: str, said: str) -> None:
    sent = Sent(7, 8)
    with pytest.raises(SignalError) as error:
        sent(text)
    assert str(error.value).startswith(said)
    assert sent.signals == []


def test_without_a_server_there_is_nobody_to_send_to() -> None:
    with pytest.raises(SignalError, match=r"^no supercluster-broker processes running$"):
        Sent()("quit")


def test_an_empty_pid_file_is_no_call_to_the_only_server(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    file.write_text("")
    with pytest.raises(SignalError, match="invalid pid"):
        Sent(7)(f"quit={file}")


def test_the_command_says_what_it_could_not_send(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["-sl", "foo"]) == 1
    assert capsys.readouterr().err.startswith('supercluster-broker: unknown signal "foo"')


def test_checking_a_configuration_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["-t"]) == 1
    said = "must specify [-c, --config] option to check configuration file syntax"
    assert said in capsys.readouterr().err
