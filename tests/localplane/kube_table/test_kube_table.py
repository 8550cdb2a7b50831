"""The embedded API server answers each case of the table as a real one does, which is asked too where there is one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.localplane.kube_table import servers
from tests.localplane.kube_table.every import CASES, recorded
from tests.localplane.kube_table.table import Case, Json

Answers = dict[str, list[Json]]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    async def run() -> Answers:
        async with servers.embedded(tmp_path_factory.mktemp("plane")) as bench:
            return await bench.answers(list(CASES))

    return asyncio.run(run())


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = servers.assets()
    if folder is None:
        pytest.skip("KUBE_ASSETS names no folder with a real kube-apiserver")

    async def run(assets: Path) -> Answers:
        async with servers.real(assets, tmp_path_factory.mktemp("kube")) as bench:
            answers = await bench.answers(list(CASES))
            # It knows a dependent, or the pods of a namespace, only once a watch has brought them, which may be after they are asked
            # about: an answer that differs is asked for once more, elsewhere.
            differ = [case for case in CASES if answers[case.name] != recorded()[case.name]]
            return answers | await bench.answers(differ, again=True)

    return asyncio.run(run(folder))


def test_every_case_is_recorded_under_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) >= 60
    assert set(recorded()) == set(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_embedded_server_answers_as_a_real_one(case: Case, embedded: Answers) -> None:
    agree = embedded[case.name] == recorded()[case.name]
    if case.differs:
        assert not agree, f"no difference is left, so this one is no longer known: {case.differs}"
        return
    for step, ours, real in zip(case.steps, embedded[case.name], recorded()[case.name], strict=True):
        assert ours == real, step


def test_the_record_is_what_a_real_server_answers(real: Answers) -> None:
    record = recorded()
    assert {name: answers for name, answers in real.items() if answers != record[name]} == {}
