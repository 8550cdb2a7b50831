"""What a cutover looked like from outside: to each client, and to whoever compares both sides. Text only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from e2e.cutover.course import Running
from e2e.cutover.kinds import BY_NAME, KINDS, PLAIN
from e2e.cutover.rows import Row

DIGEST_CHARACTERS = 12


def columns(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The first column to the left, the others to the right."""
    cells = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(heads))]
    return [
        "  "
        + "  ".join(
            [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in cells
    ]


def clients(running: Running) -> list[str]:
    """One line per client."""
    load = running.load
    done = {
        one.connection.name: (one.sent, _answered(one.mode, one.progress)) for one in load.publishers.values()
    }
    for reader in load.consumers:
        found = reader.found
        confirmed = "-" if found.is_ordered else f"{len(found.confirmed):,d} acknowledged"
        done[reader.connection.name] = (len(found.bodies), confirmed)
    rows = []
    for connection in load.connections:
        outages = connection.outages
        messages, answers = done[connection.name]
        away_ms = 1000 * sum(outage.ended - outage.began for outage in outages)
        rows.append(
            (
                *(connection.name, running.whereabouts.get(connection.name, "?"), len(outages)),
                *(f"{away_ms:,.0f}", f"{messages:,d}", answers),
            )
        )
    return columns(("client", "is on", "reconnected", "without a broker, ms", "messages", "answers"), rows)


def _answered(mode: int, progress: int) -> str:
    return "-" if mode == PLAIN else f"{progress:,d} confirmed"


def sides(running: Running) -> list[str]:
    """One line per stream: what blue handed, and what green says that it opened."""
    blue, green = running.told
    stalls = running.watch.stalls_ms()
    rows = []
    for kind in KINDS:
        handed, opened = blue.get(kind.name), green.get(kind.name)
        told = [
            f"{row['lastSeq']} {str(row['digest'])[:DIGEST_CHARACTERS]}" if row else "nothing"
            for row in (handed, opened)
        ]
        held = running.held.get(kind.name, {})
        stall = f"{stalls[kind.name]:,.0f}" if kind.name in stalls else "?"
        rows.append((kind.name, kind.text, *told, stall, f"{max(held, default=0):,d}"))
    heads = ("stream", "kind", "blue handed at", "green opened at", "fenced to open, ms", "last on green now")
    return columns(heads, rows)


def summary(row: Row) -> list[str]:
    found = row.verdict
    assert found is not None
    return [
        f"messages: {row.sent:,d} at {row.rate:,.0f}/s to {len(BY_NAME)} streams",
        f"lost {found.lost}, repeated {found.repeated}, out of order {found.disordered}, order not kept {row.order_not_kept}",
        f"at another sequence than was confirmed {found.displaced}, written by nobody {found.foreign}",
        f"refused {found.refused}, without an answer {found.unanswered}",
        f"from the fence until green was open: median {row.fenced_ms:,.0f} ms, longest {row.fenced_worst_ms:,.0f} ms",
        f"longest wait of a publisher: {row.stall_ms:,.0f} ms while it was connected, {row.redirect_ms:,.0f} ms over its redirect",
        f"clients on green: {row.on_green}",
    ]
