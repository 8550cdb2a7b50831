"""Events of mkdocs that let one set of pages read well on the forge and in the site.

The forge shows the whole repository, the site shows `docs/` and a few pages of the top level. A link that stays inside the site is kept.
A link to any other file becomes a link to the repository where `repo_url` is set, and the file's path otherwise. A link to a file that
does not exist, and a list that the two would show differently, are warnings, and the build treats warnings as errors.
"""

from __future__ import annotations

import logging
import os.path
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LOG = logging.getLogger("mkdocs.hooks.supercluster")
DOCS = "docs"
TOP_PAGES = {
    name: f"project/{name.lower()}"
    for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
}
"""Pages of the repository's top level, and where the site has them."""

FENCE = r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^[ \t]*(?P=fence)[ \t]*$"
CODE = r"(?P<ticks>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=ticks)(?!`)"
LINK = r"!?\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)"
LINK_OR_CODE = re.compile(f"{FENCE}|{CODE}|{LINK}", re.MULTILINE | re.DOTALL)
INFO = re.compile(r"^( *```\w+) [^\n{`]+$", re.MULTILINE)
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
MENTION = re.compile(r"[\w./-]+\.md")
ITEM = re.compile(r"(?P<indent> *)(?:[-*+]|\d+\.) ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = _root(config)
    for name, uri in TOP_PAGES.items():
        files.append(File.generated(config, uri, content=(root / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    for number, complaint in misread_lines(markdown):
        LOG.warning("%s, line %d: %s", uri, number, complaint)
    name = next((name for name, where in TOP_PAGES.items() if where == uri), f"{DOCS}/{uri}")
    # A block such as "sh cluster", which only tests tell from "sh".
    return INFO.sub(r"\1", LINK_OR_CODE.sub(lambda found: _link(found, name, config), markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The forge takes the backslash off a bar inside code in a cell of a table; Python-Markdown leaves it there."""
    return CELL.sub(lambda found: found[0].replace("\\|", "|"), html)


def misread_lines(markdown: str) -> list[tuple[int, str]]:
    """Lines that the forge and the site would show differently: the site needs an empty line before a list, and four spaces in it."""
    found = []
    in_list = was_empty = True
    fence = ""
    for number, line in enumerate(markdown.splitlines(), start=1):
        indent = len(line) - len(line.lstrip(" "))
        mark = re.match(r" *(`{3,}|~{3,})", line)
        if fence:
            fence = "" if mark and mark[1] == fence else fence
            continue
        fence = mark[1] if mark else ""
        item = ITEM.match(line)
        if indent % 4 and (item or mark or (was_empty and line)):
            found.append((number, f"indented by {indent} spaces; what belongs to a list needs four"))
        elif item and not was_empty and not in_list:
            found.append((number, "a list needs an empty line before it"))
        in_list = bool(item) or (in_list and not (was_empty and line and not indent))
        was_empty = not line.strip() or line.startswith("#")
    return found


def _link(found: re.Match[str], name: str, config: MkDocsConfig) -> str:
    """One link of the page with that name in the repository, as the site has it. A page that is named as code becomes a link."""
    target = found["target"]
    if found["ticks"] and MENTION.fullmatch(mention := found[0].strip("`")):
        return _mention(found[0], mention, name, config)
    if target is None or re.match(r"[a-z]+:|#|/", target):
        return found[0]
    path, _, fragment = target.partition("#")
    path = os.path.normpath(PurePosixPath(name).parent / path)
    root = _root(config)
    if not (root / path).exists():
        LOG.warning("%s: the link %s leads to %s, which does not exist", name, target, path)
        return found[0]
    suffix = f"#{fragment}" if fragment else ""
    uri = _uri(root, path)
    if uri is not None:
        return found[0].replace(f"({target})", f"({_relative(uri, name)}{suffix})")
    text = found["text"]
    if config.repo_url:
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{suffix})"
    plain = text.strip("`")
    return f"`{path}`" if path.endswith(plain) else f"{text} (`{path}`)"


def _mention(code: str, mention: str, name: str, config: MkDocsConfig) -> str:
    """A path of a page as code: a link, where the site has that page."""
    root = _root(config)
    for start in (root, root / DOCS, (root / name).parent):
        path = os.path.relpath(os.path.normpath(start / mention), root)
        uri = _uri(root, path)
        if uri is not None and (root / path).is_file():
            return f"[{code}]({_relative(uri, name)})"
    if mention.startswith(f"{DOCS}/"):
        LOG.warning("%s names %s, which does not exist", name, mention)
    return code


def _relative(uri: str, name: str) -> str:
    """From the page with that name in the repository to a page of the site."""
    here = PurePosixPath(TOP_PAGES.get(name, name.removeprefix(f"{DOCS}/"))).parent
    return os.path.relpath(uri, here)


def _uri(root: Path, path: str) -> str | None:
    """What the site calls that path of the repository, or None if the site does not have it."""
    if path == DOCS or path.startswith(f"{DOCS}/"):
        inner = f"{path}/index.md" if (root / path).is_dir() else path
        return inner.removeprefix(f"{DOCS}/")
    return TOP_PAGES.get(path)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent
