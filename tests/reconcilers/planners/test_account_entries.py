"""Accounts of users.json as they follow from spec.accounts, and what is refused with field, value and remedy (OP-1, OP-2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.reconcilers.builders import super_cluster

from supercluster.api.conditions import Reason
from supercluster.broker.auth.users_file import parse_accounts
from supercluster.reconcilers.planners.super_cluster.account_entries import (
    AccountEntriesPlan,
    AccountEntriesView,
    plan_account_entries,
)

pytestmark = pytest.mark.covers("OP-1", "OP-2")

STORE: dict[str, Any] = {
    "name": "STORE",
    "exports": [
        {"stream": "arrived.>"},
        {"service": "stock.*", "accounts": ["SHOP"], "responseType": "Stream", "responseThreshold": "90s"},
        {"service": "by.*.ask", "accountTokenPosition": 2},
    ],
}
SHOP: dict[str, Any] = {
    "name": "SHOP",
    "jetstream": False,
    "imports": [
        {"stream": {"account": "STORE", "subject": "arrived.>"}, "prefix": "store"},
        {"service": {"account": "STORE", "subject": "stock.*"}, "to": "left.$1", "share": True},
        {"service": {"account": "STORE", "subject": "by.SHOP.ask"}, "to": "ask"},
    ],
    "mappings": [
        {"subject": "old.*", "destinations": [{"subject": "new.$1", "weight": 60}]},
        {"subject": "spread.*", "destinations": [{"subject": "part.{{partition(3,1)}}.$1"}]},
    ],
}
WRITTEN: dict[str, Any] = {
    "STORE": {
        "exports": [
            {"stream": "arrived.>"},
            {
                "service": "stock.*",
                "accounts": ["SHOP"],
                "response_type": "stream",
                "response_threshold": "90s",
            },
            {"service": "by.*.ask", "account_token_position": 2},
        ]
    },
    "SHOP": {
        "jetstream": False,
        "imports": [
            {"stream": {"account": "STORE", "subject": "arrived.>"}, "prefix": "store"},
            {"service": {"account": "STORE", "subject": "stock.*"}, "to": "left.$1", "share": True},
            {"service": {"account": "STORE", "subject": "by.SHOP.ask"}, "to": "ask"},
        ],
        "mappings": {
            "old.*": [{"destination": "new.$1", "weight": 60}],
            "spread.*": [{"destination": "part.{{partition(3,1)}}.$1", "weight": 100}],
        },
    },
}


def plan(
    *accounts: dict[str, Any], there: dict[str, Any] | None = None, ours: tuple[str, ...] = ()
) -> AccountEntriesPlan:
    view = AccountEntriesView(there or {}, frozenset(ours))
    return plan_account_entries(super_cluster(accounts=list(accounts)), view)


def wanted(planned: AccountEntriesPlan) -> dict[str, Any]:
    assert planned.change is not None, planned.refusals
    return dict(planned.change.wanted)


def test_accounts_are_worded_as_brokers_read_them() -> None:
    planned = plan(STORE, SHOP)
    assert wanted(planned) == WRITTEN
    assert planned.change is not None
    assert planned.change.declared == ("SHOP", "STORE")
    parse_accounts({"accounts": WRITTEN})


def test_what_is_there_already_is_not_written_again() -> None:
    assert plan(STORE, SHOP, there=WRITTEN, ours=("SHOP", "STORE")) == AccountEntriesPlan()


def test_an_account_with_limits_alone_leaves_an_entry_by_hand_alone() -> None:
    by_hand = {"STORE": {"exports": [{"stream": "a"}]}, "other": {}}
    assert plan({"name": "STORE", "limits": {"streamsMax": 1}}, there=by_hand) == AccountEntriesPlan()


def test_entries_by_hand_stay_beside_those_that_are_declared() -> None:
    hand = {"imports": [{"stream": {"account": "STORE", "subject": "arrived.x"}}]}
    assert wanted(plan(STORE, SHOP, there={"hand": hand})) == {"hand": hand, **WRITTEN}


def test_an_equal_entry_by_hand_is_taken_over_and_another_one_is_refused() -> None:
    planned = plan(STORE, SHOP, there=WRITTEN)
    assert planned.change is not None
    assert planned.change.declared == ("SHOP", "STORE")
    differs = {**WRITTEN, "STORE": {"exports": [{"stream": ">"}, {"service": ">"}]}}
    ((reason, told),) = plan(STORE, SHOP, there=differs).refusals
    assert reason == Reason.NOT_ADOPTED
    assert told.startswith("spec.accounts[0] 'STORE' differs from accounts.STORE that users.json in Secret")
    assert "declare the same and it is taken over" in told


def test_the_same_in_other_words_is_taken_over() -> None:
    shop = {
        **WRITTEN["SHOP"],
        "mappings": {
            "old.*": {"destination": "new.$1", "weight": "60%"},
            "spread.*": "part.{{partition(3,1)}}.$1",
        },
    }
    store = {"jetstream": True, "imports": [], **WRITTEN["STORE"]}
    assert wanted(plan(STORE, SHOP, there={"SHOP": shop, "STORE": store})) == WRITTEN


def test_what_the_operator_wrote_is_put_back_and_taken_out_with_its_account() -> None:
    edited = {**WRITTEN, "SHOP": {}}
    assert wanted(plan(STORE, SHOP, there=edited, ours=("SHOP", "STORE"))) == WRITTEN
    limits_alone = {"name": "SHOP"}
    left = plan(
        {"name": "STORE", "exports": [{"stream": "arrived.>"}]},
        limits_alone,
        there=WRITTEN,
        ours=("SHOP", "STORE"),
    )
    assert wanted(left) == {"STORE": {"exports": [{"stream": "arrived.>"}]}}
    assert wanted(plan(there={**WRITTEN, "hand": {}}, ours=("SHOP", "STORE"))) == {"hand": {}}


def test_an_account_that_only_an_export_names_has_an_empty_entry() -> None:
    store = {"name": "STORE", "exports": [{"stream": "a", "accounts": ["SHOP"]}]}
    assert wanted(plan(store, {"name": "SHOP"}))["SHOP"] == {}
    parse_accounts({"accounts": wanted(plan(store, {"name": "SHOP"}))})
    by_hand = {"SHOP": {"imports": [{"stream": {"account": "STORE", "subject": "a"}}]}}
    planned = plan(store, {"name": "SHOP"}, there=by_hand)
    assert wanted(planned)["SHOP"] == by_hand["SHOP"]
    assert planned.change is not None
    assert planned.change.declared == ("STORE",)


def test_an_account_that_somebody_imports_from_by_hand_is_not_taken_out() -> None:
    hand = {"imports": [{"stream": {"account": "STORE", "subject": "arrived.x"}}]}
    planned = plan({"name": "STORE"}, there={**WRITTEN, "hand": hand}, ours=("SHOP", "STORE"))
    assert planned.change is None
    ((reason, told),) = planned.refusals
    assert reason == Reason.IMPORT_NOT_EXPORTED
    assert "users.json, accounts.hand.imports[0].stream.account 'STORE' exports nothing" in told


def test_accounts_that_cannot_be_read_are_not_written_over() -> None:
    view = AccountEntriesView(broken="users.json, accounts is no object of accounts by name")
    ((_, told),) = plan_account_entries(super_cluster(accounts=[STORE, SHOP]), view).refusals
    assert told.startswith("Secret demo-credentials: users.json, accounts is no object")


def import_of(subject: str, account: str = "STORE", kind: str = "stream", **more: Any) -> dict[str, Any]:
    return {"name": "B", "imports": [{kind: {"account": account, "subject": subject}, **more}]}


def mapped(subject: str, *destinations: dict[str, Any]) -> dict[str, Any]:
    return {"name": "B", "mappings": [{"subject": subject, "destinations": list(destinations)}]}


@pytest.mark.parametrize(
    ("account", "reason", "words"),
    [
        (
            {"name": "B", "exports": [{"stream": "a..b"}]},
            "InvalidSubject",
            "exports[0].stream 'a..b' has an empty",
        ),
        ({"name": "B", "exports": [{}]}, "OutOfRange", "exports[0] needs either stream or service"),
        (
            {"name": "B", "exports": [{"stream": "a", "responseType": "Chunked"}]},
            "OutOfRange",
            "exports[0].responseType 'Chunked' is for a service",
        ),
        (
            {"name": "B", "exports": [{"service": "a", "responseThreshold": "25h"}]},
            "OutOfRange",
            "exports[0].responseThreshold '25h' has to be from 1ms to 24h",
        ),
        (
            {"name": "B", "exports": [{"service": "a.*", "accountTokenPosition": 1}]},
            "OutOfRange",
            "exports[0].accountTokenPosition 1 is no * of 'a.*'",
        ),
        (
            {"name": "B", "exports": [{"service": "a", "accounts": ["STORE", "C"]}]},
            "AccountNotDeclared",
            "exports[0].accounts[1] 'C' is not declared; add it to spec.accounts",
        ),
        ({"name": "$G", "jetstream": False}, "OutOfRange", "jetstream false cannot be for account $G"),
        (import_of("a b"), "InvalidSubject", "imports[0].stream.subject 'a b' has a space"),
        (
            import_of("arrived.>", to="here"),
            "InvalidSubject",
            "imports[0].to 'here' does not have each wildcard",
        ),
        (import_of("arrived.>", prefix="p.*"), "InvalidSubject", "imports[0].prefix 'p.*' has a wildcard"),
        (
            import_of("stock.a", kind="service", prefix="p"),
            "OutOfRange",
            "imports[0].prefix 'p' is for a stream",
        ),
        (import_of("arrived.a", share=True), "OutOfRange", "imports[0].share true is for a service"),
        (import_of("arrived.a", to="a", prefix="b"), "OutOfRange", "imports[0].prefix 'b' is beside `to`"),
        (
            import_of("arrived.*", to="here"),
            "InvalidSubject",
            "imports[0].to 'here' does not have each wildcard",
        ),
        (import_of("arrived.a", to="b.$1"), "InvalidSubject", "has '$1', which is none of the 0 wildcards"),
        (import_of("stock.>", kind="service"), "ImportNotExported", "'stock.>' is no service that account"),
        (
            import_of("a", "C"),
            "ImportNotExported",
            "imports[0].stream.account 'C' exports nothing; add exports",
        ),
        (
            import_of("gone.a"),
            "ImportNotExported",
            "'gone.a' is no stream that account 'STORE' exports; add it",
        ),
        (
            import_of("arrived.a", kind="service"),
            "ImportNotExported",
            "'arrived.a' is no service that account",
        ),
        (
            import_of("stock.a", kind="service"),
            "ImportNotExported",
            "as spec.accounts[0].exports[1], and not to 'B'",
        ),
        (import_of("by.SHOP.ask", kind="service"), "ImportNotExported", "and not to 'B'; let its accounts"),
        (mapped("a b", {"subject": "c"}), "InvalidSubject", "mappings[0].subject 'a b' has a space"),
        (
            mapped("a", {"subject": "b.$1"}),
            "InvalidSubject",
            "destinations[0].subject 'b.$1' has '$1', and 'a' has 0",
        ),
        (mapped("a.*", {"subject": "b.*"}), "InvalidSubject", "has *; write $1"),
        (mapped("a.>", {"subject": "b"}), "InvalidSubject", "has to end with > just as 'a.>' does"),
        (
            mapped("a.*", {"subject": "{{upper(1)}}"}),
            "InvalidSubject",
            "has '{{upper(1)}}', which is none of $1",
        ),
        (
            mapped("a", {"subject": "b", "weight": 60}, {"subject": "c", "weight": 50}),
            "OutOfRange",
            "mappings[0].destinations have weights of 110 together; they are at most 100",
        ),
    ],
)
def test_what_brokers_would_refuse_is_refused_with_field_value_and_remedy(
    account: dict[str, Any], reason: str, words: str
) -> None:
    planned = plan(STORE, SHOP, account)
    assert planned.change is None, "nothing is written"
    (first, *_) = planned.refusals
    assert str(first[0]) == reason
    assert f"spec.accounts[2].{words}" in first[1] or (words in first[1] and "spec.accounts[2]" in first[1])
    assert len(first[1]) <= 480


def test_a_service_is_imported_as_one_subject_once() -> None:
    shop = {"name": "SHOP", "imports": [SHOP["imports"][1], {**SHOP["imports"][2], "to": "left.*"}]}
    ((reason, told),) = plan(STORE, shop).refusals
    assert reason == Reason.INVALID_SUBJECT
    assert (
        "spec.accounts[1].imports[1] has the subject 'left.*' here, as spec.accounts[1].imports[0] has"
        in told
    )


def test_imports_that_come_back_are_refused_over_entries_by_hand_too() -> None:
    def of(other: str) -> dict[str, Any]:
        return {"imports": [{"stream": {"account": other, "subject": "x.>"}}]}

    export = {"exports": [{"stream": "x.>"}]}
    there = {"A": {**export, **of("B")}, "B": {**export}}
    declared = {"name": "C", **export, **of("A")}
    assert plan(declared, there=there).change is not None
    ((reason, told),) = plan({"name": "A", **export, **of("A")}).refusals
    assert reason == Reason.IMPORT_CYCLE
    assert told.startswith("spec.accounts[0].imports[0] 'x.>' of account 'A' comes back to where it began")
    there = {"A": {**export, **of("C")}}
    ((_, told),) = plan(declared, there=there).refusals
    assert "users.json, accounts.A.imports[0]" in told
    assert "spec.accounts[0].imports[0]" in told
    assert "take one of these imports out" in told


def test_so_many_imports_are_refused_unjudged() -> None:
    many = [{"stream": {"account": "Z", "subject": f"a.{number}"}} for number in range(256)]
    ((reason, told),) = plan(*({"name": f"A{number}", "imports": many} for number in range(17))).refusals
    assert reason == Reason.OUT_OF_RANGE
    assert "4352 imports together; they may have 4096" in told


def test_accounts_that_would_fill_the_secret_are_refused() -> None:
    exports = [{"stream": f"{number}.{'x' * 240}"} for number in range(256)]
    declared = [{"name": f"A{number}", "exports": exports} for number in range(8)]
    ((reason, told),) = plan(*declared).refusals
    assert reason == Reason.OUT_OF_RANGE
    assert "bytes in users.json; they may have 524288" in told
    assert plan(*declared[:7]).change is not None


def test_the_guide_declares_what_its_file_has_by_hand() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "accounts.md").read_text()
    manifest, by_hand = (guide.split("## Imports and exports")[1].split("```")[at] for at in (1, 5))
    accounts = yaml.safe_load(manifest)["spec"]["accounts"]
    planned = wanted(plan(*accounts))
    parse_accounts({"accounts": planned})
    assert planned["SHOP"].pop("mappings") == {
        "old.*": [{"destination": "new.$1", "weight": 50}, {"destination": "old.$1", "weight": 50}]
    }
    assert planned["STORE"]["exports"][1].pop("accounts") == ["SHOP"]
    assert planned == json.loads(by_hand.removeprefix("json"))["accounts"]


# ---- whatever passes here, the brokers' parser takes -----------------------------------------------------------------

NAMES = ("A", "B", "C")
_odd = st.text(
    st.one_of(st.sampled_from("ab.*>$12{}() ,-"), st.characters(exclude_categories=["Cs"])),
    min_size=1,
    max_size=9,
)
_token = st.sampled_from(("a", "b", "*", "$1", "$2", "$0", "$1_0", "$x", "A", "*x"))
_call = st.sampled_from(
    (
        "{{partition(2,1)}}", "{{Partition(2)}}", "{{wildcard(1)}}", "{{wildcard( 1)}}", "{{Split(1,-)}}", "{{split(1,- )}}",
        "{{SplitFromLeft(1, 2)}}", "{{splitfromright(2,1)}}", "{{random(4)}}", "{{left(1,0)}}", "{{right(0,1)}}", "{{sliceFromLeft(1,2,3)}}",
        "{{LEFT(1,1)}}", "{{nothing}}", "{{", "x}}",
    )
)  # fmt: skip
_subject = st.one_of(
    st.builds(
        lambda tokens, tail: ".".join([*tokens, *tail]),
        st.lists(_token, min_size=1, max_size=3),
        st.sampled_from(((), (), (">",))),
    ),
    st.sampled_from(("a.>", ">", "a.*", "a.b", "*.*")),
    _odd,
)
_destination = st.one_of(_subject, st.lists(st.one_of(_token, _call), min_size=1, max_size=3).map(".".join))
_source: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, account=st.sampled_from((*NAMES, "D")), subject=_subject
)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields, as in a manifest."""
    return st.fixed_dictionaries({}, optional=fields)


_exports = st.lists(
    st.one_of(
        st.builds(dict, stream=st.sampled_from((">", "a.>"))),
        st.builds(dict, service=st.sampled_from((">", "a.>", "*.*"))),
        _some(
            stream=_subject,
            service=_subject,
            accounts=st.lists(st.sampled_from((*NAMES, "D")), max_size=2),
            accountTokenPosition=st.integers(1, 3),
            responseType=st.sampled_from(("Singleton", "Stream", "Chunked")),
            responseThreshold=st.sampled_from(("1ms", "0s", "2m30s", "24h", "24h1ms", "9" * 30 + "h")),
        ),
    ),
    max_size=3,
)
_imports = st.lists(
    st.one_of(
        st.builds(dict, stream=_source),
        st.builds(dict, service=_source),
        _some(stream=_source, service=_source, to=_subject, prefix=_subject, share=st.booleans()),
        st.builds(dict, stream=_source, to=_subject),
        st.builds(dict, service=_source, to=_subject),
        st.builds(dict, stream=_source, prefix=st.sampled_from(("p", "p.$1", "$1", "a.*", ">"))),
    ),
    max_size=2,
)
_mappings: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        subject=_subject,
        destinations=st.lists(
            st.builds(dict, subject=_destination, weight=st.sampled_from((100, 50, 0))),
            min_size=1,
            max_size=2,
        ),
    ),
    max_size=2,
)
_account = _some(jetstream=st.booleans(), exports=_exports, imports=_imports, mappings=_mappings)
EVERYTHING = [{"stream": ">"}, {"service": ">"}]


def _passes(*accounts: dict[str, Any]) -> bool:
    """Does it pass? The brokers' parser is asked then, about the file as it would be."""
    try:
        planned = plan(*({"name": name, **each} for name, each in zip(NAMES, accounts, strict=False)))
    except ValidationError:  # The API server refuses it before.
        return False
    if planned.change is None:
        return False
    parse_accounts(json.loads(json.dumps({"accounts": planned.change.wanted})))
    return True


def test_whatever_passes_is_taken_by_the_brokers_parser() -> None:
    passed = 0

    @settings(max_examples=600, deadline=None)
    @given(st.tuples(_account, _account, _account))
    def judge(accounts: tuple[dict[str, Any], ...]) -> None:
        nonlocal passed
        passed += _passes(*accounts)

    judge()
    assert passed > 10, "or nothing was shown"


CALLS = (
    *(
        "{{partition(2,1)}}",
        "{{Partition(2)}}",
        "{{partition(2,0)}}",
        "{{wildcard(1)}}",
        "{{wildcard( 1)}}",
        "{{wildcard(1,1)}}",
    ),
    *(
        "{{Split(1,-)}}",
        "{{split(1,- )}}",
        "{{split(1, -)}}",
        "{{split(1,-\t)}}",
        "{{split(0,-)}}",
        "{{SplitFromLeft(1, 2)}}",
    ),
    *(
        "{{splitfromright(2,1)}}",
        "{{random(4)}}",
        "{{random()}}",
        "{{left(1,0)}}",
        "{{LEFT(1,1)}}",
        "{{right(0,1)}}",
    ),
    *(
        "{{sliceFromLeft(1,2,3)}}",
        "{{Slicefromright(1,2)}}",
        "{{partition(9999999999,1)}}",
        "{{nothing}}",
        "{{",
        "x}}",
        "{{}}",
    ),
    *("$1", "$2", "$0", "$1_0", "$-1", "$x", "$", "$1x", "*", ">", "a", "", "a b", "$12345", "$²"),
)


def test_every_function_that_passes_is_taken_by_the_brokers_parser() -> None:
    passed = {
        call
        for call in CALLS
        for source in ("a", "a.*", "*.*", "a.>", "*.>", ">")
        for form in ("{}", "x.{}", "{}.x", "{}.>", "x.{}.$1")
        if _passes(mapped(source, {"subject": form.format(call) or "."}))
    }
    assert passed == {
        *("{{partition(2,1)}}", "{{Partition(2)}}", "{{wildcard(1)}}", "{{Split(1,-)}}", "{{split(1, -)}}"),
        *("{{SplitFromLeft(1, 2)}}", "{{splitfromright(2,1)}}", "{{random(4)}}", "{{left(1,0)}}"),
        *("$1", "$2", "$x", "$", ">", "a"),
    }


def test_every_renaming_that_passes_is_taken_by_the_brokers_parser() -> None:
    tokens = ("a", "*", "$1", "$2", ">")
    subjects = [
        *tokens,
        *(f"{one}.{other}" for one in tokens for other in tokens),
        "*.*.>",
        "$2.$1.>",
        "$1.$1",
    ]
    passed = 0
    for there in subjects:
        for here in subjects:
            for kind in ("stream", "service"):
                first = {"exports": EVERYTHING}
                passed += _passes(
                    first, {"imports": [{kind: {"account": "A", "subject": there}, "to": here}]}
                )
    assert passed > 100, "or nothing was shown"


def test_mappings_that_pass_are_taken_by_the_brokers_parser() -> None:
    passed = 0

    @settings(max_examples=800, deadline=None)
    @given(_mappings)
    def judge(mappings: list[dict[str, Any]]) -> None:
        nonlocal passed
        passed += _passes({"mappings": mappings}) and bool(mappings)

    judge()
    assert passed > 10, "or nothing was shown"


def test_imports_of_accounts_that_export_everything_are_taken_by_the_brokers_parser() -> None:
    passed = 0

    @settings(max_examples=800, deadline=None)
    @given(_imports, _imports)
    def judge(imports: list[dict[str, Any]], back: list[dict[str, Any]]) -> None:
        nonlocal passed
        first, second = {"exports": EVERYTHING, "imports": back}, {"exports": EVERYTHING, "imports": imports}
        passed += _passes(first, second) and bool(imports or back)

    judge()
    assert passed > 10, "or nothing was shown"


def test_what_passes_beside_entries_by_hand_is_taken_by_the_brokers_parser() -> None:
    passed = 0

    @settings(max_examples=800, deadline=None)
    @given(
        st.tuples(_imports, _imports),
        st.tuples(_imports, _imports),
        st.sets(st.sampled_from(NAMES)),
        st.booleans(),
    )
    def judge(
        before: tuple[list[Any], ...], after: tuple[list[Any], ...], ours: set[str], still_exports: bool
    ) -> None:
        nonlocal passed
        there = {name: {"exports": EVERYTHING, "imports": []} for name in NAMES}
        try:
            first = plan(
                *(
                    {"name": name, "exports": EVERYTHING, "imports": each}
                    for name, each in zip("AB", before, strict=True)
                )
            )
            there |= wanted(first) if first.change is not None else {}
            exports = {"exports": EVERYTHING} if still_exports else {}
            declared = [
                {"name": name, **exports, "imports": each} for name, each in zip("BC", after, strict=True)
            ]
            planned = plan(*declared, there=there, ours=tuple(ours))
        except ValidationError:
            return
        if planned.change is not None:
            passed += bool(frozenset(NAMES) - ours)
            parse_accounts(json.loads(json.dumps({"accounts": planned.change.wanted})))

    judge()
    assert passed > 10, "or nothing was shown"
