"""User-facing text is plain: no sentence that the owner has struck out, no clause as a subject.

It covers the documentation, the chart's notes and the comments of its values, the docstring at the top of
each module, the messages and help texts in code, the help of the Makefile, the descriptions in the custom resource definitions, and the
declared conditions and events.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from supercluster.api import conditions

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("operator", "crds", "reconcilers", "broker_image", "spark")
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
MESSAGES = (
    "reconcilers",
    "operator/supercluster/app",
    "operator/supercluster/localplane/node",
    "crds/supercluster/api",
)
MESSAGE_WORDS_MIN = 3

# Pages that are still to be rewritten. The list may only shrink.
EXEMPT: frozenset[str] = frozenset()

# The owner's list: sentences that stood in the product, or the telling part of each, and names of conditions.
SENTENCES = (
    "Blue-green cutovers are yet to come",
    "what a manifest asks for and is not there yet gets a condition that says so",
    "Fewer are had by emptying those with the highest numbers first",
    "Whoever leads least comes first",
    "A broker that does not come up with the new image ends it there",
    "and makes trouble: leader, destination node and operator are killed",
    "Say what each target does",
    "For what JetStream has no call for",
    "Since when that is so belongs into the map of streams",
    "Deliveries of a leader that was deposed before it knew what became of their entries",
    "All of them hear something",
    "counts here once this broker was restarted",
    "patience is longer than it has to be then, never shorter",
    "What of a custom resource can change somebody's plan",
    "Judge consumer calls by what is under way",
)
NAMES = ("Unwise", "NothingToSay", "SettingsOnTheirWay", "OutOfSight", "NoHeadway")
WORDS = ("whoever", "somebody", "anybody", "belongs into", "are had", "is had")

_NAME = re.compile(rf"\b({'|'.join(NAMES)})\b")
_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
_SUBJECT = re.compile(r"[\W_]*(What|Who|Whoever|Whatever|That which)\b")
_END = re.compile(r"(?<=[.!?])[*_\")]*\s+(?=\S)")
_MARK = re.compile(r"^\s*(?:>\s*)*(?:(?:[-*+]|\d+\.)\s+)?")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_DOCSTRING = re.compile(r'(?:\s|#.*\n)*r?"""(?P<text>.*?)"""', re.DOTALL)
_HELP = re.compile(r"^(?P<target>[a-z0-9-]+):.*?##\s*(?P<text>.*)$")
_COMMENT = re.compile(r"(?:^|\s)#\s?(?P<text>.*)$")
_RULE = re.compile(r"^\s*\|?[\s:|-]*-{3}[\s:|-]*$")


class Sentence(NamedTuple):
    line: int
    text: str


def plain(text: str) -> str:
    return " ".join(text.split())


def sentences(text: str, first_line: int = 1) -> Iterator[Sentence]:
    """The sentences of prose whose paragraphs and list items stand apart."""
    block: list[str] = []
    begin = first_line
    for number, line in enumerate([*text.split("\n"), ""], first_line):
        if block and (not line.strip() or re.match(r"\s*(?:[-*+]|\d+\.)\s", line)):
            yield from _split("\n".join(block), begin)
            block = []
        if line.strip():
            begin = begin if block else number
            block.append(line if block else _MARK.sub("", line))


def _split(block: str, line: int) -> Iterator[Sentence]:
    at = 0
    for end in [*(found.end() for found in _END.finditer(block)), len(block)]:
        yield Sentence(line + block.count("\n", 0, at), plain(block[at:end]))
        at = end


def markdown_sentences(text: str) -> Iterator[Sentence]:
    """Without code blocks; each cell of a table stands alone. Heads of tables are left out; a heading keeps its mark."""
    lines = text.split("\n")
    prose: list[str] = []
    fenced = False
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            fenced = not fenced
            prose.append("")
        elif fenced or _RULE.match(line):
            prose.append("")
        elif line.startswith("#"):
            prose.append("")
            yield Sentence(number, plain(line))
        elif line.lstrip().startswith("|"):
            prose.append("")
            if not (number < len(lines) and _RULE.match(lines[number])):
                for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                    yield from _split(cell.strip(), number)
        else:
            prose.append(line)
    yield from sentences("\n".join(prose))


def fault(sentence: str) -> str:
    """What is wrong with a sentence, and what to do; empty: nothing. A heading may name a question."""
    folded = sentence.casefold()
    for old in SENTENCES:
        if old.casefold() in folded:
            return f"{old!r} was struck out; say it with the subject first, one fact a sentence"
    if found := _NAME.search(sentence):
        return f"the condition {found[1]} was renamed; use its new name"
    if found := _WORD.search(sentence):
        return f"{found[1]!r} is not used here; name the subject"
    if not sentence.startswith("#") and not sentence.endswith("?") and (found := _SUBJECT.match(sentence)):
        return f"it begins with {found[1]!r}; begin with a noun that names the subject"
    return ""


def faults(name: str, found: Iterator[Sentence]) -> Iterator[str]:
    for line, sentence in found:
        if said := fault(sentence):
            yield f"{name}:{line}: {said}: {sentence}"


def docstring_sentences(source: str) -> Iterator[Sentence]:
    if found := _DOCSTRING.match(source):
        yield from sentences(found["text"], source.count("\n", 0, found.start("text")) + 1)


def message_sentences(source: str) -> Iterator[Sentence]:
    """The sentences of string literals that are no docstrings. A value in an f-string reads as an ellipsis."""
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            todo += [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        else:
            todo += ast.iter_child_nodes(node)
            continue
        if len(text.split()) >= MESSAGE_WORDS_MIN:
            yield from (Sentence(node.lineno, each.text) for each in sentences(text))


def help_sentences(makefile: str) -> Iterator[Sentence]:
    for number, line in enumerate(makefile.split("\n"), 1):
        if found := _HELP.match(line):
            yield from sentences(found["text"], number)


def comment_sentences(values: str) -> Iterator[Sentence]:
    """The sentences of a YAML file's comments. Lines that follow each other are one paragraph."""
    found = (_COMMENT.search(line) for line in values.split("\n"))
    yield from sentences("\n".join(comment["text"] if comment else "" for comment in found))


def descriptions(node: Any) -> Iterator[tuple[int, str]]:
    """Line and text of each description in a YAML tree."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "description" and isinstance(value, yaml.ScalarNode):
                yield value.start_mark.line + 1, value.value
            else:
                yield from descriptions(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from descriptions(value)


def of_the_pages() -> Iterator[str]:
    pages = [ROOT / name for name in PAGES]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        name = str(page.relative_to(ROOT))
        if name not in EXEMPT:
            yield from faults(name, markdown_sentences(page.read_text()))
    for notes in sorted((ROOT / "charts").rglob("NOTES.txt")):
        yield from faults(str(notes.relative_to(ROOT)), sentences(notes.read_text()))
    for values in sorted((ROOT / "charts").rglob("values.yaml")):
        yield from faults(str(values.relative_to(ROOT)), comment_sentences(values.read_text()))
    yield from faults("Makefile", help_sentences((ROOT / "Makefile").read_text()))


def of_the_modules() -> Iterator[str]:
    for package in PACKAGES:
        for module in sorted((ROOT / package).rglob("*.py")):
            yield from faults(str(module.relative_to(ROOT)), docstring_sentences(module.read_text()))


def of_the_messages() -> Iterator[str]:
    for folder in MESSAGES:
        for module in sorted((ROOT / folder).rglob("*.py")):
            yield from faults(str(module.relative_to(ROOT)), message_sentences(module.read_text()))


def of_the_definitions() -> Iterator[str]:
    for definition in sorted((ROOT / "crds").glob("*.yaml")):
        tree = yaml.compose(definition.read_text(), Loader=yaml.CSafeLoader)
        for line, text in descriptions(tree):
            found = (Sentence(line, each.text) for each in sentences(text))
            yield from faults(str(definition.relative_to(ROOT)), found)


def of_the_conditions() -> Iterator[str]:
    for declared in (conditions.TYPES, conditions.REASONS, conditions.EVENTS):
        for name, entry in declared.items():
            for text in (name, entry.meaning):
                yield from faults(f"crds/supercluster/api/conditions.py ({name})", sentences(text))


@pytest.mark.parametrize(
    "found",
    [of_the_pages, of_the_modules, of_the_messages, of_the_definitions, of_the_conditions],
    ids=lambda part: part.__name__,
)
def test_user_facing_text_is_plain(found: Callable[[], Iterator[str]]) -> None:
    assert not (wrong := list(found())), "\n".join(wrong)


def test_the_list_of_exempt_pages_names_only_pages_that_need_it() -> None:
    for name in EXEMPT:
        assert list(faults(name, markdown_sentences((ROOT / name).read_text()))), (
            f"{name} is plain: take it out"
        )


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_that_was_struck_out_is_found(sentence: str) -> None:
    head, _, tail = sentence.partition(" ")
    page = f"# Title\n\nBrokers store messages. Here,\n{head}\n{tail}, too.\n"
    [said] = faults("docs/a.md", markdown_sentences(page))
    assert said.startswith(f"docs/a.md:3: {sentence!r} was struck out; say it")


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_under_its_old_name_is_found(name: str) -> None:
    [said] = faults("docs/a.md", markdown_sentences(f"- One item.\n- The condition `{name}` is true.\n"))
    assert (
        said
        == f"docs/a.md:2: the condition {name} was renamed; use its new name: The condition `{name}` is true."
    )


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_hides_the_subject_is_found(word: str) -> None:
    [said] = faults("a.py", docstring_sentences(f'"""One fact.\n\nAnother {word} fact.\n"""\n'))
    assert said == f"a.py:3: {word!r} is not used here; name the subject: Another {word} fact."


@pytest.mark.parametrize("subject", ["What", "Who", "Whoever", "Whatever", "That which"])
@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("{} leads is said.\n", 1),
        ("A broker leads. {} follows\nis said.\n", 1),
        ("- A broker leads.\n- **{}** follows is said.\n", 2),
        ("| broker | meaning |\n|---|---|\n| one | {} leads |\n", 3),
        ("> {} leads is said.\n", 1),
    ],
)
def test_a_clause_as_a_subject_is_found(subject: str, page: str, line: int) -> None:
    [said] = faults("docs/a.md", markdown_sentences(page.format(subject)))
    assert said.startswith(f"docs/a.md:{line}: ")


@pytest.mark.parametrize(
    "page",
    [
        "What does a broker store?\n",
        "## What a broker stores\n\nMessages.\n",
        "| What | Meaning |\n|---|---|\n| leader | a broker |\n",
        "```\nWhat a program prints\n```\n",
        "A broker knows what it stores. The leader asks who follows.\n",
    ],
    ids=["question", "heading", "head of a table", "code", "clause as an object"],
)
def test_questions_headings_and_code_are_no_fault(page: str) -> None:
    assert not list(faults("docs/a.md", markdown_sentences(page)))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (markdown_sentences, "Text.\n\n## Why somebody asks\n"),
        (message_sentences, '"""Doc."""\n\nMESSAGE = "given by somebody else"\n'),
        (message_sentences, '"""Doc."""\n\nMESSAGE = f"node {name} of somebody"\n'),
        (message_sentences, "\n\nMESSAGE = f\"node {name or 'that somebody made'}\"\n"),
        (message_sentences, '\n\nraise ValueError("given by " "somebody")\n'),
        (help_sentences, "A = 1\n\ntest: $(STAMP) ## Ask somebody to test\n"),
        (comment_sentences, "a: 1\n\n# Unset: somebody asks.\n"),
        (comment_sentences, "a: 1\n\nb: 2 # Unset: somebody asks.\n"),
    ],
    ids=["heading", "string", "f-string", "nested string", "joined", "help", "comment", "comment at the end"],
)
def test_a_word_is_found_in_headings_messages_help_and_comments(
    read: Callable[[str], Iterator[Sentence]], text: str
) -> None:
    [said] = faults("a", read(text))
    assert said.startswith("a:3: 'somebody' is not used here")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("SECURITY.md", "Ask somebody.\n"),
        ("docs/adr/a.md", "Ask somebody.\n"),
        ("docs/guides/a.md", "# Ask somebody\n"),
        ("Makefile", "test: ## Ask somebody\n"),
        ("charts/a/values.yaml", "# Ask somebody.\n"),
        *((f"{folder}/a.py", 'A = "ask somebody else"\n') for folder in MESSAGES),
    ],
)
def test_each_place_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    for name in (*PAGES, "Makefile"):
        (tmp_path / name).touch()
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    [said] = [*of_the_pages(), *of_the_messages()]
    assert said.startswith(f"{file}:1: 'somebody' is not used here")


def test_docstrings_and_short_strings_are_no_messages() -> None:
    source = 'class A:\n    """Of somebody else."""\n    b = 1\n    """Of somebody else."""\n    c = "for somebody"\n'
    assert not list(message_sentences(source))


def test_a_description_of_a_definition_is_read() -> None:
    tree = yaml.compose("spec:\n  items:\n  - description: Who signs.\n", Loader=yaml.CSafeLoader)
    assert list(descriptions(tree)) == [(3, "Who signs.")]
