"""Draw docs/img/overview.svg, the picture of the README: operator, two clusters, a move, a cutover and Spark.

`python -m tools.draw_overview` writes it; with `--check` it compares. The picture has its own background, so it reads the same on a
light and on a dark page, and it uses no font that must be fetched.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "img" / "overview.svg"
WIDTH, HEIGHT = 980, 520
INK, QUIET, PAPER = "#1f2933", "#52606d", "#ffffff"
BLUE, GREEN, ORANGE, VIOLET, GREY = "#2563eb", "#15803d", "#c2410c", "#7c3aed", "#9aa5b1"
TITLE = "The operator runs two clusters of brokers, moves a stream between them, and cuts over to another super-cluster; Spark reads and writes the streams."


def text(x: float, y: float, words: str, *, size: int = 14, colour: str = INK, bold: bool = False) -> str:
    """One line of text, centred on x."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{weight}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, *, line: str, fill: str = PAPER) -> str:
    """A rectangle with round corners; x and y are its upper left corner."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="{line}" stroke-width="1.5"/>'


def arrow(path: str, colour: str, *, dashed: bool = False, both: bool = False) -> str:
    """A line with a head at its end, or at both ends."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    name = colour.lstrip("#")
    start = f' marker-start="url(#{name})"' if both else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}{start} marker-end="url(#{name})"/>'


def head(colour: str) -> str:
    return (
        f'<marker id="{colour.lstrip("#")}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
    )


def cluster(x: float, y: float, name: str, colour: str, copies: str) -> list[str]:
    """A cluster of three brokers, each with a copy of the stream; `copies` is how the copies are drawn."""
    drawn = [box(x, y, 230, 130, line=colour), text(x + 115, y + 22, name, bold=True)]
    for number in range(3):
        left = x + 14 + number * 69
        drawn.append(box(left, y + 36, 64, 80, line=GREY, fill="#f5f7fa"))
        drawn.append(text(left + 32, y + 56, f"broker {number}", size=12, colour=QUIET))
        dashes = ' stroke-dasharray="4 3"' if copies == PAPER else ""
        line = f'stroke="{ORANGE}" stroke-width="1.5"{dashes}'
        drawn.append(
            f'<rect x="{left + 9:g}" y="{y + 68:g}" width="46" height="34" rx="4" fill="{copies}" {line}/>'
        )
        drawn.append(text(left + 32, y + 89, "orders", size=12))
    return drawn


def drawing() -> str:
    """The whole picture as SVG."""
    parts = [
        box(0.75, 0.75, WIDTH - 1.5, HEIGHT - 1.5, line="#e4e7eb"),
        # The way of a manifest.
        box(24, 24, 190, 62, line=INK),
        text(119, 50, "kubectl, Helm, GitOps", bold=True),
        text(119, 70, "custom resources", size=12, colour=QUIET),
        arrow("M214 55H318", INK),
        box(320, 24, 330, 62, line=INK, fill="#f5f7fa"),
        text(485, 50, "supercluster operator", bold=True),
        text(485, 70, "observes, plans, carries out, audits", size=12, colour=QUIET),
        # Blue and its two clusters.
        box(170, 128, 540, 212, line=BLUE, fill="#eff6ff"),
        text(440, 152, "super-cluster blue", colour=BLUE, bold=True),
        *cluster(186, 166, "cluster east", BLUE, "#ffedd5"),
        *cluster(464, 166, "cluster west", BLUE, PAPER),
        arrow("M301 298C340 334 540 334 579 300", ORANGE),
        text(440, 315, "StreamMove", size=12, colour=ORANGE, bold=True),
        arrow("M485 86V126", INK, dashed=True),
        # Green.
        box(780, 128, 176, 212, line=GREEN, fill="#f0fdf4"),
        text(868, 152, "super-cluster green", colour=GREEN, bold=True),
        box(800, 172, 136, 62, line=GREEN),
        text(868, 198, "clusters", bold=True),
        text(868, 218, "streams, consumers", size=12, colour=QUIET),
        box(800, 256, 136, 62, line=GREEN),
        text(868, 282, "clients follow", bold=True),
        text(868, 302, "in their order", size=12, colour=QUIET),
        arrow("M710 234H778", GREEN),
        text(744, 222, "Migration", size=12, colour=GREEN, bold=True),
        arrow("M650 55H868V126", INK, dashed=True),
        # Clients.
        box(24, 196, 96, 74, line=INK),
        text(72, 228, "NATS", bold=True),
        text(72, 248, "clients", bold=True),
        arrow("M122 233H168", INK, both=True),
        # Spark.
        box(170, 420, 540, 72, line=VIOLET, fill="#f5f3ff"),
        text(440, 450, "Spark on Kubernetes", bold=True),
        text(440, 472, "StreamPipeline: reads each message, writes each row once", size=12, colour=QUIET),
        arrow("M440 418V342", VIOLET, both=True),
        text(500, 384, "read, write", size=12, colour=VIOLET),
        arrow("M710 456H868V342", VIOLET, both=True),
        text(800, 448, "undisturbed", size=12, colour=VIOLET),
    ]
    heads = "".join(head(colour) for colour in (INK, BLUE, GREEN, ORANGE, VIOLET))
    body = "\n".join(parts)
    fonts = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="{fonts}" text-anchor="middle">\n<title>{escape(TITLE)}</title>\n'
        f"<defs>{heads}</defs>\n{body}\n</svg>\n"
    )


def main() -> int:
    """Write the picture, or compare it: 0 equal, 1 different."""
    if sys.argv[1:] == ["--check"]:
        there = PICTURE.read_text(encoding="utf-8") if PICTURE.exists() else ""
        if there == drawing():
            return 0
        print(
            f"{PICTURE} differs from the script; `python -m tools.draw_overview` writes it", file=sys.stderr
        )
        return 1
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawing(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
