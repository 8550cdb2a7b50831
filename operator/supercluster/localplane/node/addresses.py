"""Loopback addresses for pods: one each, recorded in a file, and reused as late as possible.

A plane has a block of four times 256 addresses in 127.77.0.0/16, so that several planes on one machine don't
collide. A plane holds its block by a listening socket on the first address, which the kernel releases when
the plane dies. A StatefulSet's pod keeps its address while the state exists. Other addresses are assigned in
a circle, so a released one is reused as late as possible.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
from pathlib import Path

FIRST = int(ipaddress.IPv4Address("127.77.0.0"))
BLOCKS = 64
BLOCK_ADDRESSES = 1024
RESERVED = 128
"""The block's first addresses are the nodes' own."""
NODE_PORT = 10250
KUBELET_PORT = 10251
"""Of each node's own address: what an API server asks it for, where it is served (`kubelet`)."""


class OutOfAddresses(Exception):  # noqa: N818 - named as what it is
    def __init__(self) -> None:
        super().__init__(f"all {BLOCK_ADDRESSES - RESERVED - 1} addresses of this plane are in use by pods")


class Addresses:
    """The block and who has which address of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        digest = hashlib.sha256(str(path.resolve()).encode()).digest()
        self.block: int = held.get("block", digest[0] % BLOCKS)
        self._next: int = held.get("next", RESERVED)
        self._by_pod: dict[str, int] = dict(held.get("pods", {}))
        self._in_use: set[str] = set()

    def claim_block(self) -> socket.socket:
        """Take a free block, the one held before if possible. The socket (not yet listening) holds it.

        Raises:
            OSError: no block is free.
        """
        for step in range(BLOCKS):
            block = (self.block + step) % BLOCKS
            holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                holder.bind((self._text(block, 1), NODE_PORT))
                holder.listen(16)
            except OSError:
                holder.close()
                continue
            self.block = block
            self._save()
            return holder
        raise OSError(f"no free block of addresses in 127.77.0.0/16: {BLOCKS} planes are running")

    @staticmethod
    def _text(block: int, offset: int) -> str:
        return str(ipaddress.IPv4Address(FIRST + block * BLOCK_ADDRESSES + offset))

    def node(self, index: int) -> str:
        """The address of a node; nodes beyond the reserved range share the last."""
        return self._text(self.block, 1 + min(index, RESERVED - 2))

    def take(self, pod: str) -> str:
        """The address of pod `namespace/name`, the one it had before if it is known."""
        if pod not in self._by_pod:
            self._by_pod[pod] = self._free()
            self._save()
        self._in_use.add(pod)
        return self._text(self.block, self._by_pod[pod])

    def release(self, pod: str, *, keep: bool) -> None:
        """The pod is gone; with `keep` its name has the address again when it comes back."""
        self._in_use.discard(pod)
        if not keep and self._by_pod.pop(pod, None) is not None:
            self._save()

    def _free(self) -> int:
        for only_unknown in (True, False):
            taken = {offset for pod, offset in self._by_pod.items() if only_unknown or pod in self._in_use}
            for step in range(BLOCK_ADDRESSES - RESERVED - 1):
                span = BLOCK_ADDRESSES - RESERVED - 1
                offset = RESERVED + (self._next - RESERVED + step) % span
                if offset not in taken and offset % 256 not in (0, 255):
                    self._next = offset + 1
                    self._by_pod = {pod: held for pod, held in self._by_pod.items() if held != offset}
                    return offset
        raise OutOfAddresses

    def _save(self) -> None:
        text = json.dumps({"block": self.block, "next": self._next, "pods": self._by_pod})
        swap = self._path.with_suffix(".tmp")
        swap.write_text(text)
        swap.replace(self._path)
