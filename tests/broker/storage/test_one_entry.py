"""`supercluster-broker entry`: a person looks at an entry in the files of a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.broker.storage.entries import fill
from tests.broker.storage.lives import Stop, open_log

from supercluster.broker.jetstream.encoding.sections import (
    MessagesSection,
    Section,
    SessionKey,
    VerdictRun,
    encode_block,
    encode_messages,
    section,
)
from supercluster.broker.raft.entry import EntryKind, make_entry
from supercluster.broker.runtime import entry_command
from supercluster.broker.storage.disk.os_disk import OsDisk
from supercluster.broker.storage.log.options import LogOptions
from supercluster.broker.storage.volume.volume import directory_name

GROUP = "S:$G/ORDERS"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert entry_command.main(list(arguments)) == 0
    said = capsys.readouterr()
    assert "A newer version of the broker" in said.err
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return found


@pytest.mark.covers("SF-25")
def test_the_command_shows_an_entry_of_a_log_in_use_without_contents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = f"groups/{directory_name(GROUP)}"
    log, _ = open_log(OsDisk(tmp_path), directory, LogOptions(segment_bytes=400), Stop.KILLED)
    fill(log, 10)
    block = encode_block([b"orders.1", b"NATS/1.0\r\nAuthorization: secret-token\r\n\r\n", b"secret-payload"])
    messages = MessagesSection(SessionKey("n0", "inc", 1), 0, VerdictRun(1, 1, 11), block)
    payload = b"".join(section(Section.MESSAGES, encode_messages(messages))) + b"\x63\x05\x00\x00\x00ab"
    log.append(
        [
            make_entry(
                index=11, term=3, kind=EntryKind.BATCH, time_ns=7, first_seq=11, count=1, payload=payload
            )
        ]
    )
    found = shown(capsys, str(tmp_path), GROUP, "11")
    assert (found["index"], found["term"], found["firstSeq"]) == (11, 3, 11)
    sections = found["sections"]
    assert isinstance(sections, list)
    assert sections[0]["messages"][0]["subject"] == "orders.1"
    assert sections[0]["messages"][0]["headers"] == ["Authorization"]
    assert "cut off" in sections[1]["error"], "what cannot be decoded is shown as that"
    assert "secret" not in json.dumps(found)
    assert "secret" in json.dumps(shown(capsys, str(tmp_path), GROUP, "11", "--payload", "6"))
    assert shown(capsys, str(tmp_path), GROUP, "4")["index"] == 4, "of an older segment"
    for group, index in ((GROUP, "12"), ("no-such", "1")):
        assert entry_command.main([str(tmp_path), group, index]) == 1
    log.close(clean=True)
