"""Commands in the pages that their programs would refuse: parsed, never run.

Every block of shell commands in `docs/` and in the pages of the root folder is taken apart into simple commands. `supercluster` has to
take its words, `make` has to have the target and the variable, `helm` the chart and its values, `kubectl` the kind, and a path of the
repository has to exist.
A command with `…` in it is shown in part, and is left alone.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.main import get_command

from supercluster.api.crd import KINDS
from supercluster.app.cli.program import app

BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = {"", "sh", "sh cluster", "bash", "shell", "console"}
HEREDOC = re.compile(
    r"<<-?\s*['\"]?(\w+)['\"]?(?P<rest>[^\n]*)\n(?P<body>.*?)^\s*\1$", re.MULTILINE | re.DOTALL
)
COMMENT = re.compile(r"(^|\s)#\s.*$", re.MULTILINE)
PLACEHOLDER = re.compile(r"<[A-Za-z][A-Za-z -]*>")
FILE_NUMBER = re.compile(r"(?<=\s)\d(?=[<>])")
OPERATORS = set("();<>|&\n")
KEYWORDS = {"!", "{", "}", "do", "done", "elif", "else", "fi", "for", "if", "then", "time", "until", "while"}
VARIABLE = re.compile(r"\$\{?\w+\}?")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
FOLDERS = ("benchmarks/", "charts/", "crds/", "docs/", "e2e/", "tests/", "tools/")

KUBECTL_WITH_VALUE = {
    *("-n", "--namespace", "-l", "--selector", "-o", "--output", "-f", "--filename", "-p", "--patch", "-c"),
    *("--type", "--context", "--kubeconfig", "--as", "--field-selector", "--for", "--timeout", "-k"),
}
KUBECTL_ON_KINDS = {
    "annotate",
    "delete",
    "describe",
    "edit",
    "explain",
    "get",
    "label",
    "patch",
    "scale",
    "wait",
}
KUBERNETES_KINDS = {
    *(
        "pod",
        "pods",
        "po",
        "service",
        "services",
        "svc",
        "secret",
        "secrets",
        "configmap",
        "configmaps",
        "cm",
    ),
    *("statefulset", "statefulsets", "sts", "deployment", "deployments", "deploy", "job", "jobs", "cronjobs"),
    *(
        "persistentvolumeclaim",
        "persistentvolumeclaims",
        "pvc",
        "persistentvolume",
        "persistentvolumes",
        "pv",
    ),
    *(
        "node",
        "nodes",
        "no",
        "namespace",
        "namespaces",
        "ns",
        "events",
        "lease",
        "leases",
        "poddisruptionbudget",
    ),
    *(
        "poddisruptionbudgets",
        "pdb",
        "crd",
        "customresourcedefinitions",
        "storageclass",
        "storageclasses",
        "sc",
    ),
}


def pages_of(root: Path) -> list[Path]:
    """The pages in the root folder, such as README.md and CONTRIBUTING.md, and those below docs/."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def refused_commands(root: Path) -> list[str]:
    """One line for each command in the pages of that root and its docs that would be refused: where it is, what it is, and why."""
    checks = _Checks(root)
    found = []
    for page in pages_of(root):
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block["language"].strip() not in SHELL:
                continue
            for words in simple_commands(block["text"]):
                reason = checks.refusal(words)
                if reason is not None:
                    line = text.count("\n", 0, block.start("text")) + 1
                    found.append(
                        f"{page.relative_to(root)}, block of line {line}: {shlex.join(words)}: {reason}"
                    )
    return found


def simple_commands(script: str) -> Iterator[list[str]]:
    """Words of each command of a script, without redirections, assignments in front, keywords and what heredocs have."""
    script = HEREDOC.sub(lambda found: found["rest"], script)
    script = PLACEHOLDER.sub("placeholder", COMMENT.sub(r"\1", script.replace("\\\n", " ")))
    script = FILE_NUMBER.sub("", script)
    lexer = shlex.shlex(script, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    redirected = False
    for token in lexer:
        if set(token) <= OPERATORS:
            redirected = set(token) & {"<", ">"} != set() and "\n" not in token
            if not redirected:
                if words:
                    yield words
                words = []
        elif redirected:
            redirected = False
        elif words or not (token in KEYWORDS or ASSIGNMENT.match(token)):
            words.append(token)
    if words:
        yield words


def supercluster_refusal(words: list[str]) -> str | None:
    """Why `supercluster` would refuse these words, or None. It only reads them."""
    command = get_command(app)
    _forget_work(command)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            command.main(
                [VARIABLE.sub("1", word) for word in words], prog_name="supercluster", standalone_mode=False
            )
        except typer.TyperException as error:
            return error.format_message()
    return None


def _forget_work(command: Any) -> None:
    """Leave the parsing of a command, and of those below it."""
    command.callback = None
    command.invoke_without_command = True
    for parameter in command.params:
        parameter.callback = None
    for other in getattr(command, "commands", {}).values():
        _forget_work(other)


class _Checks:
    """What each program of the pages takes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        makefile = (root / "Makefile").read_text(encoding="utf-8")
        self._targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
        scripts = [makefile, *(path.read_text(encoding="utf-8") for path in root.glob("tools/*.sh"))]
        self._variables = set(re.findall(r"\b[A-Z][A-Z_]+\b", "\n".join(scripts)))
        self._kinds = KUBERNETES_KINDS | {
            name for kind in KINDS for name in (kind.name.lower(), kind.plural, kind.short_name)
        }
        self._programs = {
            "supercluster": supercluster_refusal,
            "make": self._make_refusal,
            "helm": self._helm_refusal,
            "kubectl": self._kubectl_refusal,
        }

    def refusal(self, words: list[str]) -> str | None:
        if any("…" in word or word == "..." for word in words):
            return None
        for word in words:
            if word.startswith(FOLDERS) and not any(self._root.glob(word.rstrip("/"))):
                return f"there is no {word}"
        check = self._programs.get(words[0].rpartition("/")[2])
        return check(words[1:]) if check else None

    def _make_refusal(self, words: list[str]) -> str | None:
        for word in words:
            name = word.partition("=")[0]
            if ASSIGNMENT.match(word):
                if name not in self._variables:
                    return f"the Makefile does not use {name}"
            elif not word.startswith("-") and word not in self._targets:
                return f"the Makefile has no target {word}"
        return None

    def _helm_refusal(self, words: list[str]) -> str | None:
        charts = [word for word in words if word.startswith("charts/")]
        if not charts:
            return None
        values = yaml.safe_load((self._root / charts[0] / "values.yaml").read_text(encoding="utf-8"))
        for option, given in pairwise(words):
            if option not in ("--set", "--set-string"):
                continue
            for pair in re.split(r",(?=[\w.]+(?:\[\d+\])?(?:\.\w+)*=)", given):
                path = pair.partition("=")[0]
                if not _has_value(values, re.sub(r"\[\d+\]", ".0", path).split(".")):
                    return f"the chart has no value {path}"
        return None

    def _kubectl_refusal(self, words: list[str]) -> str | None:
        plain = _positional(words)
        if not plain or plain[0] not in KUBECTL_ON_KINDS or len(plain) < 2:
            return None
        for word in plain[1].split(",") if "/" not in plain[1] else plain[1:]:
            kind = word.partition("/")[0]
            if "/" in plain[1] and "/" not in word:
                break
            if kind.partition(".")[0].lower() not in self._kinds:
                return f"{kind} is no kind of ours, nor one that tools/docs/commands.py lists"
        return None


def _positional(words: list[str]) -> list[str]:
    """Words that are neither options nor their values."""
    found = []
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            found.append(word)
        is_value = word in KUBECTL_WITH_VALUE
    return found


def _has_value(values: Any, path: list[str]) -> bool:
    """Whether a chart's values have that path. Below an empty map or list anything may be set."""
    for name in path:
        if values == {} or values == []:
            return True
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True
