"""The documentation site: it builds in silence, needs no other host, and refuses links and commands that lead nowhere."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tools.docs.commands import refused_commands, simple_commands
from tools.docs.hooks import misread_lines

STREAM = """\
apiVersion: supercluster.dev/v1alpha1
kind: Stream
metadata: {name: orders}
spec: {superCluster: demo, subject: orders}"""
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}


def tree_of_pages(folder: Path) -> Path:
    """A copy of the pages and of what builds them, in which all else leads to the repository."""
    for path in ROOT.iterdir():
        if path.name not in ("docs", "tools", ".cache"):
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def build(folder: Path, repository: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tools.docs.build"],
        cwd=folder,
        env={**os.environ, "SUPERCLUSTER_REPO_URL": repository},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tree_of_pages(tmp_path_factory.mktemp("site"))
    done = build(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / ".cache/site"


class Page(HTMLParser):
    """What a page has its reader's browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value for name, value in attrs if value and (tag, name) in LOADED]
        self.classes |= {word for name, value in attrs if name == "class" and value for word in value.split()}


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for path in pages:
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.loaded
        assert [url for url in page.loaded if re.match(r"(https?:)?//", url)] == [], path
        # The theme's script would fetch what draws such a block.
        assert "mermaid" not in page.classes, path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_what_the_forge_shows_as_code_and_tables_is_so_in_the_site(site: Path) -> None:
    assert "(Ki|Mi|Gi|Ti|k|M|G|T)" in (site / "api/index.html").read_text(encoding="utf-8")
    for path in site.rglob("*.html"):
        assert not re.search(r"<p>(```|\|)|\n```", path.read_text(encoding="utf-8")), path


def test_the_site_can_be_searched_and_has_pages_of_the_top_level(site: Path) -> None:
    assert "A move takes the replicas of one stream" in (site / "search/search_index.json").read_text()
    assert "The way of a message" in (site / "project/architecture/index.html").read_text()


def test_the_same_pages_give_the_same_site(site: Path, tmp_path: Path) -> None:
    assert build(tree_of_pages(tmp_path)).returncode == 0
    again = tmp_path / ".cache/site"
    files = [path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()]
    assert filecmp.cmpfiles(site, again, files, shallow=False) == (files, [], [])


def test_a_link_out_of_the_pages_is_a_path_or_leads_to_the_repository(site: Path, tmp_path: Path) -> None:
    page = "guides/cutover/index.html"
    assert "<code>e2e/cutover/traffic.py</code> publishes ten messages" in (site / page).read_text()
    assert build(tree_of_pages(tmp_path), "https://forge.example/team/supercluster").returncode == 0
    link = 'href="https://forge.example/team/supercluster/blob/main/e2e/cutover/traffic.py"'
    assert link in (tmp_path / ".cache/site" / page).read_text()


def test_a_page_that_is_named_as_code_is_a_link(site: Path) -> None:
    link = '<a href="../adr/gateways/"><code>docs/adr/gateways.md</code></a>'
    assert link in (site / "broker-process/index.html").read_text(encoding="utf-8")


def test_what_leads_nowhere_is_refused(tmp_path: Path) -> None:
    planted = {
        "[a](nowhere.md)": "'nowhere.md', but the target is not found",
        "[b](concepts.md#nowhere)": "concepts.md#nowhere",
        "[c](../charts/nowhere.yaml)": "leads to charts/nowhere.yaml, which does not exist",
        "`docs/nowhere.md`": "names docs/nowhere.md, which does not exist",
        "[d](/docs/api.md)": "absolute link '/docs/api.md'",
        "text\n- item": "a list needs an empty line before it",
        "```sh\nsupercluster status --nowhere\n```": "--nowhere",
        "```sh\nkubectl get nowheres\n```": "nowheres is no kind",
        "```sh\nmake nowhere\n```": "the Makefile has no target nowhere",
        f"```yaml\n{STREAM}\n```": 'Stream orders: unknown field "spec.subject"',
        f"```sh\nkubectl apply -f - <<EOF\n{STREAM.replace('orders', 'bills')}\nEOF\n```": 'Stream bills: unknown field "spec.subject"',
    }
    folder = tree_of_pages(tmp_path)
    with (folder / "docs/index.md").open("a") as page:
        page.write("\n" + "\n\n".join(planted) + "\n")
    (folder / "docs/forgotten.md").write_text("# Forgotten\n")
    done = build(folder)
    assert done.returncode == 1
    for refusal in (*planted.values(), "forgotten.md"):
        assert refusal in done.stderr


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("supercluster move flights --to west --dry-run", None),
        (".venv/bin/supercluster dev up --nodes 4 2>up.log", None),
        ("supercluster moove flights", "No such command 'moove'"),
        ("supercluster users rotate shop --deadline-after soon", "'soon' is not a period"),
        ("supercluster --install-completion", None),
        ("supercluster move flights", "--to"),
        ("until supercluster status --wiat | grep -q Ready; do sleep 1; done", "--wiat"),
        ("supercluster move … --to", None),
        ("supercluster recover meta --node $broker --accept-last-index ${index}", None),
        ("KEEP=1 make demo KEEP=1", None),
        ("make demo KEPT=1", "does not use KEPT"),
        ("kubectl get str,ncl -A -o wide", None),
        ("kubectl -n messaging wait --for=condition=Ready stream/orders", None),
        ("kubectl delete strom/orders", "strom is no kind"),
        ("kubectl patch ncl east --type merge -p '{}'", None),
        ("kubectl apply -f e2e/manifests/nowhere.yaml", "there is no e2e/manifests/nowhere.yaml"),
        ("helm upgrade it charts/supercluster --set alerts.enabled=true --set alerts.labels.a=b", None),
        ("helm upgrade it charts/supercluster --set alerts.enabld=true", "no value alerts.enabld"),
    ],
)
def test_commands_are_parsed_as_their_programs_would(
    tmp_path: Path, command: str, refusal: str | None
) -> None:
    for name in ("Makefile", "charts", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "README.md").write_text(f"```sh\n{command}\n```\n")
    (tmp_path / "docs").mkdir()
    found = refused_commands(tmp_path)
    if refusal is None:
        assert found == []
    else:
        (line,) = found
        assert line.startswith("README.md, block of line 2: ")
        assert refusal in line


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_commands_of_the_pages_beside_the_readme_are_checked(tmp_path: Path, page: str) -> None:
    assert (ROOT / page).is_file()
    (tmp_path / "Makefile").touch()
    (tmp_path / page).write_text("```sh\nmake nothing\n```\n")
    assert refused_commands(tmp_path) == [
        f"{page}, block of line 2: make nothing: the Makefile has no target nothing"
    ]


def test_a_script_is_taken_apart_into_commands() -> None:
    script = """
# supercluster nowhere
export KUBECONFIG=$HOME/config
kubectl apply -f - <<EOF
kind: Stream
metadata: {name: make}
EOF
if A=1 make check; then kubectl get str \\
  -o name > list | sort & fi
kubectl annotate ncl east a=<revision>   # approve
"""
    assert list(simple_commands(script)) == [
        ["export", "KUBECONFIG=$HOME/config"],
        ["kubectl", "apply", "-f", "-"],
        ["make", "check"],
        ["kubectl", "get", "str", "-o", "name"],
        ["sort"],
        ["kubectl", "annotate", "ncl", "east", "a=placeholder"],
    ]


def test_lines_that_the_forge_and_the_site_would_show_differently_are_found() -> None:
    page = "A\n- b\n\n- c\n- d\n\n    ```\n- e\n    ```\n\n  - f\n\ng\n\n   h\n"
    assert [number for number, _ in misread_lines(page)] == [2, 11, 15]


def test_the_index_of_decisions_lists_each_of_them() -> None:
    folder = ROOT / "docs/adr"
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in folder.glob("*.md") if path.name != "index.md")
