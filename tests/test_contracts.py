"""The layers keep apart: what pyproject's import contracts can't say, and a proof that each of them can fail."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.contracts.layers import LayersContract

from supercluster.api.conditions import Reason

ROOT = Path(__file__).resolve().parent.parent
ROOTS = ("operator", "crds", "reconcilers", "broker_image", "spark")
PLANNERS = "supercluster.reconcilers.planners"
IMPORTLINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
FORBIDDEN, LAYERS = (
    [contract for contract in IMPORTLINTER["contracts"] if contract["type"] == kind]
    for kind in ("forbidden", "layers")
)
LINT = (
    "import sys; from importlinter.cli import lint_imports; "
    "sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))"
)


def test_planners_import_nothing_but_the_api_and_the_standard_library() -> None:
    graph = grimp.build_graph(
        "supercluster.reconcilers", "supercluster.api", include_external_packages=True, cache_dir=None
    )
    allowed = (PLANNERS, "supercluster.api")
    found = {
        (module, imported)
        for module in graph.find_descendants(PLANNERS) | {PLANNERS}
        for imported in graph.find_modules_directly_imported_by(module)
        if not imported.startswith(allowed) and imported.partition(".")[0] not in sys.stdlib_module_names
    }
    assert found == set()


def test_only_the_outer_parts_of_the_broker_touch_sockets_files_and_clocks() -> None:
    graph = grimp.build_graph("supercluster.broker", include_external_packages=True, cache_dir=None)
    touching = {
        "asyncio",
        "socket",
        "os",
        "time",
        "pathlib",
        "io",
        "threading",
        "subprocess",
        "aiohttp",
        "uvloop",
    }
    folders = {
        module.split(".")[2]
        for outside in touching & graph.modules
        for module in graph.find_modules_that_directly_import(outside)
    }
    assert folders <= {"auth", "bulk", "net", "monitor", "settings", "storage", "runtime", "dropin", "main"}


def test_no_package_shadows_the_standard_library_or_closes_the_namespace() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert [root for root in ROOTS if (ROOT / root / "supercluster" / "__init__.py").exists()] == []


def test_the_product_never_names_where_it_was_planned() -> None:
    """`.ci/run` may use the tools that are there, where they are there."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    named = [
        name
        for name in tracked
        if name not in ("tests/test_contracts.py", ".ci/run") and b"../shared" in (ROOT / name).read_bytes()
    ]
    assert named == []


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Modules that import each other in the end: what is left when all that import nothing of the rest are taken away."""
    left = {
        module: {found for found in graph.find_modules_directly_imported_by(module) if found != module}
        for module in graph.modules
    }
    while leaves := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in leaves}
    # Those above a circle are in none.
    while tops := left.keys() - set().union(*left.values()):
        left = {module: imported for module, imported in left.items() if module not in tops}
    return sorted([module, *sorted(imported & left.keys())] for module, imported in left.items())


def test_no_modules_import_each_other() -> None:
    """Imports of types alone count: who names a type knows its module."""
    graph = grimp.build_graph(*IMPORTLINTER["root_packages"], cache_dir=None)
    assert circles(graph) == []
    graph.add_import(
        importer="supercluster.broker.jetstream.errors",
        imported="supercluster.broker.jetstream.core.broker",
    )
    assert circles(graph)


WHOLES = re.compile(r"\b(BrokerCore|ProcessCore|StreamReplica|MetaReplica)\b")
WIRING = {
    "node/bootstrap.py": ["self.replica: MetaReplica | None"],
}
"""Who keeps a whole, since it makes it: `bootstrap` opens the map's replica, and `core/broker.py` hands out its parts."""


def taking_wholes(source: str) -> list[str]:
    """Parameters and fields that are annotated with what is made of many parts, of which a part would do."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg) and node.annotation:
            found.append(ast.unparse(node))
        elif isinstance(node, ast.AnnAssign):
            found.append(f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}")
    return [annotated for annotated in found if WHOLES.search(annotated)]


def test_nobody_is_handed_a_whole_core_or_replica() -> None:
    """Who makes one knows it, and hands out its parts."""
    broker = ROOT / "broker_image/supercluster/broker"
    sources = {str(path.relative_to(broker)): path.read_text() for path in broker.rglob("*.py")}
    found = {path: taking_wholes(source) for path, source in sources.items() if WHOLES.search(source)}
    allowed = {f"jetstream/{path}": kept for path, kept in WIRING.items()}
    assert {path: taking for path, taking in found.items() if taking} == allowed
    wrong = "def f(core: 'BrokerCore | None', *more: StreamReplica) -> MetaReplica: ...\nclass A:\n    core: ProcessCore\n"
    assert sorted(taking_wholes(wrong)) == [
        "core: 'BrokerCore | None'",
        "core: ProcessCore",
        "more: StreamReplica",
    ]


REPLICAS = re.compile(r"\b(Replica|StreamReplica|MetaReplica)\b")


def called_group(source: str) -> list[int]:
    """Lines that call what is annotated or made as a replica `group`, which is what it is one replica of."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg):
            names, is_replica = {node.arg}, node.annotation and REPLICAS.search(ast.unparse(node.annotation))
        elif isinstance(node, ast.AnnAssign):
            names, is_replica = {ast.unparse(node.target)}, REPLICAS.search(ast.unparse(node.annotation))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = {ast.unparse(target) for target in node.targets}
            is_replica = REPLICAS.fullmatch(ast.unparse(node.value.func))
        else:
            continue
        if is_replica and "group" in names:
            found.append(node.lineno)
    return sorted(found)


def test_a_replica_is_not_called_a_group() -> None:
    sources = {
        path: path.read_text() for root in ("broker_image", "tests") for path in (ROOT / root).rglob("*.py")
    }
    found = {path: called_group(source) for path, source in sources.items() if REPLICAS.search(source)}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert called_group(
        "def f(group: Replica | None): ...\ngroup: 'MetaReplica'\ngroup = StreamReplica()"
    ) == [1, 2, 3]
    assert called_group("def f(replica: Replica, group: str): ...\nreplica = MetaReplica(group)") == []


OLD_ATTRIBUTES = {
    "surroundings",
    "life",
    "kept",
    "aside",
    "founding",
    "founding_id",
    "unusable",
    "book",
    "judge",
}
OLD_REASONS = {
    "NothingToSay",
    "Unwise",
    "SettingsOnTheirWay",
    "OutOfSight",
    "NoHeadway",
    "HeldUp",
    "MapAnew",
}
UNUSABLE_OF_AN_ANSWER = "api/answers.py"
"""`unusable` is the public word for a replica that can do nothing with its copy."""


def old_attributes(source: str) -> set[str]:
    """Attributes that a source gives to an object or declares in a class, by names that were given up."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            found |= {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
            found |= {ast.unparse(each.targets[0]) for each in node.body if isinstance(each, ast.Assign)}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if name.lower() in OLD_ATTRIBUTES}


def test_names_that_were_given_up_do_not_come_back() -> None:
    base = ROOT / "broker_image/supercluster/broker/jetstream"
    found = {str(path.relative_to(base)): old_attributes(path.read_text()) for path in base.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {UNUSABLE_OF_AN_ANSWER: {"unusable"}}
    assert old_attributes("class A:\n    ASIDE = 1\n    def f(self): self.life = self.book") == {
        "ASIDE",
        "life",
    }
    assert not [reason for reason in Reason if reason.value in OLD_REASONS or reason.value.endswith("Begun")]


CONTRACTS_OF = {
    "api": 1,
    "app": 1,
    "broker": 3,
    "broker.archive": 1,
    "broker.bulk": 1,
    "broker.bulk.blocks": 1,
    "broker.bulk.cache": 1,
    "broker.bulk.layout": 1,
    "broker.jetstream": 2,
    "broker.migration": 1,
    "broker.monitor": 1,
    "broker.moves": 1,
    "broker.net": 1,
    "broker.net.clients": 1,
    "broker.net.clients.redirect": 1,
    "broker.net.links": 1,
    "broker.net.routing": 1,
    "broker.protocol": 1,
    "broker.raft": 2,
    "broker.storage": 1,
    "localplane.apiserver": 1,
    "reconcilers": 2,
    "reconcilers.planners": 2,
    "spark": 2,
}
"""How many import contracts are about each package: one that is taken out, or about less, is seen."""


def test_no_contract_went() -> None:
    about = [name for each in FORBIDDEN for name in each["source_modules"]]
    about += [name for each in LAYERS for name in each["containers"]]
    assert Counter(name.removeprefix("supercluster.") for name in about) == CONTRACTS_OF


ALIASES = {"msg", "DefaultSource", "next_green_group"}
"""Of Raft's messages; as Spark names a source; and the one that is of another super-cluster."""


def renamed_imports(source: str) -> list[str]:
    """Imports of our own modules by names that do not have theirs in them: an old name comes back that way."""
    return [
        f"{alias.name} as {alias.asname}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("supercluster")
        for alias in node.names
        if alias.asname and alias.name.lower() not in alias.asname.lower() and alias.asname not in ALIASES
    ]


def test_no_import_gives_a_module_another_name() -> None:
    roots = (*ROOTS, "tests", "e2e", "benchmarks")
    sources = {path: path.read_text() for root in roots for path in (ROOT / root).rglob("*.py")}
    found = {path: renamed_imports(source) for path, source in sources.items() if " as " in source}
    assert {path: names for path, names in found.items() if names} == {}
    wrong = (
        "from supercluster.broker.main import main as start, a as a_main\nfrom supercluster.a import b as old"
    )
    assert renamed_imports(wrong) == ["main as start", "b as old"]


MODULES_MAX = 25


def test_no_package_has_more_modules_than_one_can_survey() -> None:
    graph = grimp.build_graph(*IMPORTLINTER["root_packages"], cache_dir=None)
    sizes = {
        module: sum(1 for child in graph.find_children(module) if not graph.find_children(child))
        for module in graph.modules
    }
    found = {module: size for module, size in sizes.items() if size > MODULES_MAX}
    assert found == {}


NAMED_OTHERWISE = {
    "app/main.py": "the operator's process: the class and what starts it",
    "broker/jetstream/config/sources.py": "the option `sources`, each of which is an Origin, as a mirror's is",
    "broker/jetstream/encoding/codec.py": "functions that encode beside the class that reads",
    "broker/jetstream/links/source_frames.py": "frames, of which one is longer than the others",
    "reconcilers/execute/destructive.py": "the rules, and the class that keeps them",
}
"""Modules whose largest class has another name, and why."""
CLASSES = re.compile(r"^class ([A-Za-z]\w*)((?:.*\n)(?:(?:[ )].*)?\n)*)", re.MULTILINE)


def named_otherwise(module: str, source: str) -> str:
    """The largest public class, when it is much of the module, and neither name contains the other."""
    sizes = {name: body.rstrip().count("\n") for name, body in CLASSES.findall(source)}
    largest = max(sizes, key=sizes.__getitem__, default="")
    short, full = largest.lower(), module.replace("_", "")
    is_large = sizes.get(largest, 0) > 0.4 * len(source.splitlines())
    return largest if is_large and full not in short and short not in full else ""


def test_the_main_class_of_a_module_bears_its_name() -> None:
    files = [
        (path.relative_to(ROOT / root / "supercluster"), path)
        for root in ROOTS
        for path in (ROOT / root / "supercluster").rglob("*.py")
        if path.stem != "__init__"
    ]
    found = {str(short): named_otherwise(path.stem, path.read_text()) for short, path in files}
    assert {short for short, name in found.items() if name} == NAMED_OTHERWISE.keys()
    assert named_otherwise("websocket_door", "class WebSocketDoor:\n    x = 1\n    y = 2\n") == ""
    assert named_otherwise("door", "class Gate:\n    x = 1\n    y = 2\n") == "Gate"


@pytest.mark.parametrize("contract", FORBIDDEN, ids=[contract["name"] for contract in FORBIDDEN])
def test_each_contract_can_fail(contract: dict[str, list[str]], tmp_path: Path) -> None:
    """A package that breaks the contract stands in for its source, and the linter says so."""
    package = tmp_path / "offender"
    package.mkdir()
    (package / "__init__.py").write_text(f"import {contract['forbidden_modules'][0]}\n")
    roots = json.dumps(["offender", *IMPORTLINTER["root_packages"]])
    breaks(
        f"[tool.importlinter]\nroot_packages = {roots}\ninclude_external_packages = true\n"
        '[[tool.importlinter.contracts]]\nname = "copy"\ntype = "forbidden"\nsource_modules = ["offender"]\n'
        f"forbidden_modules = {json.dumps(contract['forbidden_modules'])}\n",
        tmp_path,
    )


def is_kept(graph: grimp.ImportGraph, contract: dict[str, Any], layers: list[str]) -> bool:
    """What the linter says of a contract about floors, with these floors."""
    options = {
        "containers": contract["containers"],
        "layers": layers,
        "exhaustive": str(contract["exhaustive"]),
    }
    checked = LayersContract("copy", {"root_packages": IMPORTLINTER["root_packages"]}, options)
    return bool(checked.check(graph, verbose=False).kept)


@pytest.mark.parametrize("contract", LAYERS, ids=[contract["name"] for contract in LAYERS])
def test_each_contract_about_floors_breaks(contract: dict[str, Any]) -> None:
    """With any two neighbouring floors exchanged, and with a module on none of them."""
    graph = grimp.build_graph(*IMPORTLINTER["root_packages"], cache_dir=None)
    floors = contract["layers"]
    assert is_kept(graph, contract, floors)
    exchanged = [
        [*floors[:at], floors[at + 1], floors[at], *floors[at + 2 :]] for at in range(len(floors) - 1)
    ]
    assert [layers for layers in exchanged if is_kept(graph, contract, layers)] == []
    graph.add_module(f"{contract['containers'][0]}.on_no_floor")
    assert not is_kept(graph, contract, floors)


def breaks(contract: str, tmp_path: Path) -> None:
    """The linter says of a configuration that its contract is broken."""
    config = tmp_path / "contract.toml"
    config.write_text(contract)
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(config)],
        env={
            "PYTHONPATH": ":".join([str(tmp_path), *(str(ROOT / root) for root in ROOTS)]),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "copy BROKEN" in done.stdout, done.stdout + done.stderr


def test_tests_of_the_broker_stand_where_what_they_test_stands() -> None:
    """`tests/broker/cluster` is about several brokers together."""
    tests, product = ROOT / "tests/broker", ROOT / "broker_image/supercluster/broker"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    assert {str(folder) for folder in folders if not (product / folder).is_dir()} == {"cluster"}
    assert not list((tests / "jetstream").glob("test_*.py"))
