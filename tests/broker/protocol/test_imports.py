"""Which imports fit which exports, and what is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.broker.protocol.durations import parse_duration_ns
from supercluster.broker.protocol.imports import AccountBook, ServiceImport, WrongImportError
from supercluster.broker.protocol.imports_file import read_account


def book(**accounts: Any) -> AccountBook:
    return AccountBook(read_account(name, told, parse_duration_ns) for name, told in accounts.items())


def service(account: str, subject: str, **more: Any) -> dict[str, Any]:
    return {"service": {"account": account, "subject": subject}, **more}


def stream(account: str, subject: str, **more: Any) -> dict[str, Any]:
    return {"stream": {"account": account, "subject": subject}, **more}


def test_an_import_finds_the_export_of_just_its_subject_before_a_wider_one() -> None:
    found = book(
        A={
            "exports": [
                {"service": "q.>"},
                {"service": "q.x", "response_type": "Stream", "response_threshold": "5s"},
            ]
        },
        B={"imports": [service("A", "q.x"), service("A", "q.y", to="home.y")]},
    )
    first, second = found.accounts["B"].services
    assert isinstance(first, ServiceImport)
    assert (found.export_for("B", first).response, found.export_for("B", first).threshold_ms) == (
        "stream",
        5000,
    )
    assert (found.export_for("B", second).response, found.export_for("B", second).threshold_ms) == (
        "singleton",
        120_000,
    )


def test_books_that_say_the_same_are_the_same() -> None:
    def one(**more: Any) -> AccountBook:
        return book(A={"exports": [{"stream": "a.*.*"}]}, B={"imports": [stream("A", "a.*.*", **more)]})

    assert one(to="b.$1.$2") == one(to="b.*.*")
    assert one(to="b.$1.$2") != one(to="b.$2.$1")
    assert one() != one(prefix="p")


@pytest.mark.parametrize(
    ("accounts", "path", "said"),
    [
        (
            {"B": {"imports": [service("A", "x")]}},
            ("B", "imports", 0),
            "'A' of the service import is not declared",
        ),
        ({"A": {}, "B": {"imports": [stream("A", "x")]}}, ("B", "imports", 0), "'A' does not export it"),
        (
            {
                "A": {"exports": [{"service": "x", "accounts": ["C"]}]},
                "B": {"imports": [service("A", "x")]},
                "C": {},
            },
            ("B", "imports", 0),
            "does not export it to 'B'",
        ),
        (
            {"A": {"exports": [{"service": "x"}]}, "B": {"imports": [stream("A", "x")]}},
            ("B", "imports", 0),
            "stream import 'x'",
        ),
        (
            {"A": {"exports": [{"service": "x.*"}]}, "B": {"imports": [service("A", "x.>")]}},
            ("B", "imports", 0),
            "does not export it",
        ),
        (
            {
                "A": {"exports": [{"service": "x.*.y", "account_token_position": 2}]},
                "B": {"imports": [service("A", "x.C.y")]},
            },
            ("B", "imports", 0),
            "does not export it to 'B'",
        ),
        ({"A": {"exports": [{"service": "x", "accounts": ["Z"]}]}}, ("A", "exports", 0), "'Z' of the export"),
        ({"A": {"exports": [{"stream": "x", "service": "y"}]}}, ("A", "exports", 0), "and not both"),
        ({"A": {"exports": [{}]}}, ("A", "exports", 0), "either a stream or a service"),
        (
            {"A": {"exports": [{"stream": "x", "response_type": "stream"}]}},
            ("A", "exports", 0, "response_type"),
            "for services",
        ),
        (
            {"A": {"exports": [{"service": "x", "response_type": "no"}]}},
            ("A", "exports", 0, "response_type"),
            "none of",
        ),
        ({"A": {"exports": [{"service": "x", "what": 1}]}}, ("A", "exports", 0, "what"), "unknown field"),
        ({"A": {"exports": [{"service": "x..y"}]}}, ("A", "exports", 0, "service"), "no subject"),
        (
            {"A": {"exports": [{"service": "x.y", "account_token_position": 2}]}},
            ("A", "exports", 0, "account_token_position"),
            "has to be *",
        ),
        ({"A": {"exports": {"service": "x"}}}, ("A", "exports"), "has to be a list"),
        (
            {"A": {"exports": [{"stream": "x.*"}]}, "B": {"imports": [stream("A", "x.*", to="y.$2")]}},
            ("B", "imports", 0, "to"),
            "names none of",
        ),
        (
            {"A": {"exports": [{"stream": "x"}]}, "B": {"imports": [stream("A", "x", to="y", prefix="p")]}},
            ("B", "imports", 0, "prefix"),
            "only one of to and prefix",
        ),
        (
            {"A": {"exports": [{"stream": "x"}]}, "B": {"imports": [stream("A", "x", prefix="p.*")]}},
            ("B", "imports", 0, "prefix"),
            "without wildcards",
        ),
        (
            {"A": {"exports": [{"service": "x"}]}, "B": {"imports": [service("A", "x"), service("A", "x")]}},
            ("B", "imports", 1),
            "imported twice",
        ),
        (
            {
                "A": {
                    "mappings": {
                        "a": [{"destination": "b", "weight": 60}, {"destination": "c", "weight": "50%"}]
                    }
                }
            },
            ("A", "mappings", "a"),
            "more than 100%",
        ),
        ({"A": {"mappings": {"a.*": "b.$2"}}}, ("A", "mappings", "a.*"), "out of range"),
        (
            {"A": {"mappings": {"a": [{"destination": "b", "cluster": "east"}]}}},
            ("A", "mappings", "a", 0),
            "one cluster",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    accounts: dict[str, Any], path: tuple[str | int, ...], said: str
) -> None:
    with pytest.raises(WrongImportError) as refused:
        book(**accounts)
    assert refused.value.path == path
    assert said in str(refused.value)


@pytest.mark.parametrize("weight", ["²", "9" * 5000, "101%", "", -1, True])
def test_a_weight_is_a_percentage(weight: object) -> None:
    with pytest.raises(WrongImportError, match="weight has to be a percentage"):
        book(A={"mappings": {"a": [{"destination": "b", "weight": weight}]}})


@pytest.mark.parametrize(
    "accounts",
    [
        {
            "A": {"exports": [{"service": "x"}], "imports": [service("B", "x")]},
            "B": {"exports": [{"service": "x"}], "imports": [service("A", "x")]},
        },
        {
            "A": {"exports": [{"service": "a.>"}], "imports": [service("C", "c.x", to="a.x")]},
            "B": {"exports": [{"service": "b.>"}], "imports": [service("A", "a.x", to="b.x")]},
            "C": {"exports": [{"service": "c.>"}], "imports": [service("B", "b.x", to="c.x")]},
        },
        {"A": {"exports": [{"service": "x.>"}], "imports": [service("A", "x.y", to="x.*")]}},
        {
            "A": {"exports": [{"stream": "x"}], "imports": [stream("B", "x")]},
            "B": {"exports": [{"stream": "x"}], "imports": [stream("A", "x")]},
        },
    ],
)
def test_imports_that_come_back_to_where_they_began_are_refused(accounts: dict[str, Any]) -> None:
    with pytest.raises(WrongImportError, match="forms a cycle"):
        book(**accounts)


def test_imports_of_one_account_in_both_directions_that_do_not_meet_are_fine() -> None:
    found = book(
        A={"exports": [{"service": "a.>"}], "imports": [service("B", "b.x")]},
        B={"exports": [{"service": "b.>"}], "imports": [service("A", "a.x")]},
    )
    assert len(found.accounts["A"].services) == len(found.accounts["B"].services) == 1
