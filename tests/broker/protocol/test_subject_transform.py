"""Transforms of subjects. Every line is what nats-server 2.15.1 answered to the same transform."""

from __future__ import annotations

import re

import pytest

from supercluster.broker.protocol.subject_transform import TransformError, check_mapping, compile_transform

SUBJECTS = ("abcdef.x", "a-b-c.x", "-a-b-.x", "a--b.yy", "abc.zz", "ab.q")


@pytest.mark.parametrize(
    ("destination", "wanted"),
    [
        ("t.{{partition(10,1)}}", "t.6 t.9 t.3 t.6 t.1 t.6"),
        ("t.{{partition(7,1,2)}}", "t.1 t.6 t.5 t.1 t.4 t.4"),
        ("t.{{partition(10)}}", "t.7 t.6 t.0 t.7 t.8 t.8"),
        ("t.{{split(1,-)}}", "t.abcdef t.a.b.c t.a.b t.a.b t.abc t.ab"),
        ("t.{{splitfromleft(1,2)}}", "t.ab.cdef t.a-.b-c t.-a.-b- t.a-.-b t.ab.c t.ab"),
        ("t.{{SplitFromRight(1,2)}}", "t.abcd.ef t.a-b.-c t.-a-.b- t.a-.-b t.a.bc t.ab"),
        ("t.{{slicefromleft(1,2)}}", "t.ab.cd.ef t.a-.b-.c t.-a.-b.- t.a-.-b t.ab.c t.ab"),
        ("t.{{SliceFromRight(1,4)}}", "t.ab.cdef t.a.-b-c t.-.a-b- t.a--b t.abc t.ab"),
        ("t.{{left(1,3)}}", "t.abc t.a-b t.-a- t.a-- t.abc t.ab"),
        ("t.{{Right(1,3)}}", "t.def t.b-c t.-b- t.--b t.abc t.ab"),
        (
            "t.$2.{{ wildcard( 1 ) }}.k",
            "t.x.abcdef.k t.x.a-b-c.k t.x.-a-b-.k t.yy.a--b.k t.zz.abc.k t.q.ab.k",
        ),
        ("t.$x", "t.$x t.$x t.$x t.$x t.$x t.$x"),
        ("{{partition(0,1)}}", "0 0 0 0 0 0"),
        ("{{random(0)}}", "0 0 0 0 0 0"),
        ("{{wildcard(0)}}", "q q q q q q"),
        ("$0.x", "q.x q.x q.x q.x q.x q.x"),
    ],
)
def test_functions_give_what_nats_gives(destination: str, wanted: str) -> None:
    transform = compile_transform("q.*.*", destination)
    assert transform is not None
    found = [transform.apply(b"q." + subject.encode()) for subject in SUBJECTS]
    assert found == [item.encode() for item in wanted.split()]


@pytest.mark.parametrize(
    ("source", "destination", "wanted"),
    [
        ("a.*.>", "b.{{wildcard(1)}}.>", [None, "b.b.c", "b.q.b"]),
        ("a.>", "b.{{partition(4)}}.>", ["b.0.b", "b.3.b.c", "b.1.q.b"]),
        ("a.b", "x.{{partition(4)}}", ["x.0", None, None]),
        ("a.*.b", "c.{{wildcard(1)}}.{{wildcard(1)}}", [None, None, "c.q.q"]),
        ("a.*", "x{{wildcard(1)}}", ["x{{wildcard(1)}}", None, None]),
        ("a.*", "b", ["b", None, None]),
        ("", "all.>", ["all.a.b", "all.a.b.c", "all.a.q.b"]),
        ("a.>", "a.>", ["a.b", "a.b.c", "a.q.b"]),
    ],
)
def test_a_source_says_which_subjects_are_meant(
    source: str, destination: str, wanted: list[str | None]
) -> None:
    transform = compile_transform(source, destination)
    assert transform is not None
    found = [transform.apply(subject) for subject in (b"a.b", b"a.b.c", b"a.q.b")]
    assert found == [item.encode() if item is not None else None for item in wanted]


def test_random_goes_by_the_number_that_is_handed_in() -> None:
    transform = compile_transform("a.*", "r.{{random(3)}}")
    assert transform is not None
    assert transform.is_random
    assert {transform.apply(b"a.x", number) for number in range(9)} == {b"r.0", b"r.1", b"r.2"}


def test_without_a_destination_subjects_stay() -> None:
    assert compile_transform("a.>", "") is None


def _read(source: str, destination: str) -> None:
    check_mapping(destination)
    compile_transform(source, destination)


MAPPING = "invalid mapping destination: "
RANGE = "wildcard index out of range in "
ARGUMENT = "function argument is invalid or in the wrong format in "


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        ("a.*.*", "b.$3", MAPPING + RANGE + "$3: [3]"),
        ("a.*", "b.*.*", "invalid subject"),
        ("a.>", "b", "invalid subject"),
        ("a", "b.*", "invalid subject"),
        ("a.*", ">", "invalid subject"),
        ("a..b", "b", "invalid subject"),
        ("a.*", "b..c", MAPPING + "invalid transform"),
        ("a.b", "x y", MAPPING + "invalid transform"),
        ("a.>", ">.x", MAPPING + "invalid transform in x"),
        ("a.*", "b.{{foo(1)}}", MAPPING + "unknown function in {{foo(1)}}"),
        ("a.*", "b.{{wildcard}}", MAPPING + "unknown function in {{wildcard}}"),
        ("a.*", "b.{{wildcard(x)}}", MAPPING + ARGUMENT + "{{wildcard(x)}}"),
        ("a.*", "{{wildcard()}}", MAPPING + "not enough arguments passed to the function in {{wildcard()}}"),
        (
            "a.*",
            "{{wildcard(1,2)}}",
            MAPPING + "too many arguments passed to the function in {{wildcard(1,2)}}",
        ),
        ("a.*", "{{split(1)}}", MAPPING + "not enough arguments passed to the function in {{split(1)}}"),
        ("a.*", "{{split(1,a b)}}", MAPPING + ARGUMENT + "{{split(1,a b)}}"),
        ("a.*", "{{partition(x,1)}}", MAPPING + ARGUMENT + "{{partition(x,1)}}"),
        ("a.*", "{{partition()}}", MAPPING + ARGUMENT + "{{partition()}}"),
        ("a.*", "{{random()}}", MAPPING + ARGUMENT + "{{random()}}"),
        ("a.*", "{{left(3,1)}}", MAPPING + RANGE + "{{left(3,1)}}: [3]"),
        ("a.*", "{{partition(10,2)}}", MAPPING + RANGE + "{{partition(10,2)}}: [2]"),
        ("a.>", "b.{{partition(4,1)}}.>", MAPPING + RANGE + "{{partition(4,1)}}: [1]"),
        ("a.b", "x.{{wildcard(1)}}", MAPPING + RANGE + "{{wildcard(1)}}"),
        ("a.b", "x.$1", MAPPING + RANGE + "$1"),
    ],
)
def test_a_wrong_transform_is_refused_in_nats_words(source: str, destination: str, text: str) -> None:
    with pytest.raises(TransformError, match=re.escape(text) + "$"):
        _read(source, destination)


@pytest.mark.covers("SF-24")
def test_a_subject_that_would_become_too_long_to_be_stored_stays_as_it_is() -> None:
    """A transform may name a token of 4 KB twenty times."""
    transform = compile_transform("a.*", ".".join(["{{wildcard(1)}}"] * 20))
    assert transform is not None
    assert transform.apply(b"a." + b"x" * 3000) == b".".join([b"x" * 3000] * 20)
    assert transform.apply(b"a." + b"x" * 4000) is None
