"""Mirrors and sources: configurations that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.compat.bench import Bench
from tests.compat.table import Group

rows = Group("origins")


def _refused(name: str, what: str, code: int, err_code: int, text: str, config: Callable[[str], Any]) -> None:
    @rows(f"refused.{name}", f"refused: {what}")
    async def run(b: Bench) -> None:
        origin = await b.stream(max_msg_size=100)
        await b.stream_refused(code=code, err_code=err_code, text=text, **config(origin.name))


_refused(
    "mirror-subjects",
    "a mirror with subjects",
    400,
    10034,
    "stream mirrors can not contain subjects",
    lambda o: {"mirror": {"name": o}, "subjects": ["x.y"]},
)

_refused(
    "mirror-sources",
    "a mirror with sources",
    400,
    10031,
    "stream mirrors can not also contain other sources",
    lambda o: {"mirror": {"name": o}, "sources": [{"name": o}]},
)

_refused(
    "mirror-first",
    "a mirror with a first sequence",
    400,
    10143,
    "stream mirrors can not have first sequence configured",
    lambda o: {"mirror": {"name": o}, "first_seq": 5},
)

_refused(
    "mirror-name",
    "a mirror of no name",
    400,
    10142,
    "mirrored stream name is invalid",
    lambda o: {"mirror": {"name": ""}},
)

_refused(
    "mirror-self",
    "a mirror of itself",
    500,
    10052,
    "detected cycle",
    lambda o: {"name": f"{o}self", "mirror": {"name": f"{o}self"}},
)

_refused(
    "mirror-filter",
    "a mirror's filter that is none",
    500,
    10049,
    "subject filter 'o..1' for the mirror invalid subject",
    lambda o: {"mirror": {"name": o, "filter_subject": "o..1"}},
)

_refused(
    "mirror-both",
    "a mirror's filter beside transforms",
    400,
    10150,
    "mirror with multiple subject transforms cannot also have a single subject filter",
    lambda o: {
        "mirror": {"name": o, "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}
    },
)

_refused(
    "mirror-overlap",
    "a mirror's transforms that overlap",
    400,
    10152,
    "mirror subject filters can not overlap",
    lambda o: {
        "mirror": {"name": o, "subject_transforms": [{"src": "a", "dest": "b"}, {"src": "*", "dest": "c"}]}
    },
)

_refused(
    "mirror-transform",
    "a mirror's transform that is none",
    400,
    10154,
    "mirror transform: invalid subject",
    lambda o: {"mirror": {"name": o, "subject_transforms": [{"src": "a", "dest": "b.*"}]}},
)

_refused(
    "mirror-transform-source",
    "a mirror's transform of no subject",
    400,
    10151,
    "mirror transform source: invalid subject a..b",
    lambda o: {"mirror": {"name": o, "subject_transforms": [{"src": "a..b", "dest": "b"}]}},
)

_refused(
    "mirror-size",
    "a mirror that takes only smaller messages",
    400,
    10030,
    "stream mirror must have max message size >= source",
    lambda o: {"mirror": {"name": o}, "max_msg_size": 10},
)

_refused(
    "mirror-direct",
    "mirror_direct without a mirror",
    500,
    10052,
    "stream has no mirror but does have mirror direct",
    lambda o: {"subjects": [f"{o}x"], "mirror_direct": True},
)

_refused(
    "external-api",
    "an external prefix with wildcards",
    500,
    10052,
    'stream external api prefix "foo.>" must be a valid subject without wildcards',
    lambda o: {"mirror": {"name": o, "external": {"api": "foo.>"}}},
)

_refused(
    "external-own",
    "an external prefix that is the own one",
    400,
    10021,
    "stream external api prefix $JS.API must not overlap with $JS.API",
    lambda o: {"mirror": {"name": o, "external": {"api": "$JS.API"}}},
)

_refused(
    "source-name",
    "a source of no name",
    400,
    10141,
    "sourced stream name is invalid",
    lambda o: {"sources": [{"name": "a.b"}]},
)

_refused(
    "source-self",
    "a source that is the stream itself",
    500,
    10052,
    "detected cycle",
    lambda o: {"name": f"{o}self", "sources": [{"name": f"{o}self"}]},
)

_refused(
    "source-twice",
    "the same source twice",
    400,
    10140,
    "duplicate source configuration detected",
    lambda o: {"sources": [{"name": o}, {"name": o}]},
)

_refused(
    "source-filter",
    "a source's filter that is none",
    500,
    10049,
    "subject filter 'o..1' for the source: invalid subject",
    lambda o: {"sources": [{"name": o, "filter_subject": "o..1"}]},
)

_refused(
    "source-both",
    "a source's filter beside transforms",
    400,
    10144,
    "source with multiple subject transforms cannot also have a single subject filter",
    lambda o: {
        "sources": [{"name": o, "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}]
    },
)

_refused(
    "source-transform",
    "a source's transform that is none",
    400,
    10146,
    "source transform: invalid subject",
    lambda o: {"sources": [{"name": o, "subject_transforms": [{"src": "a", "dest": "b.*"}]}]},
)

_refused(
    "source-transform-source",
    "a source's transform of no subject",
    400,
    10145,
    "source transform source: invalid subject a..b",
    lambda o: {"sources": [{"name": o, "subject_transforms": [{"src": "a..b", "dest": "b"}]}]},
)

_refused(
    "source-overlap",
    "a source's transforms that overlap",
    400,
    10147,
    "source filters can not overlap",
    lambda o: {
        "sources": [{"name": o, "subject_transforms": [{"src": "a", "dest": "b"}, {"src": "*", "dest": "c"}]}]
    },
)

_refused(
    "source-size",
    "a source of larger messages",
    400,
    10046,
    "stream source must have max message size >= target",
    lambda o: {"sources": [{"name": o}], "max_msg_size": 10},
)

_refused(
    "mirror-counter",
    "a mirror that counts",
    400,
    10173,
    "stream mirrors can not also calculate counters",
    lambda o: {"mirror": {"name": o}, "allow_msg_counter": True},
)

_refused(
    "mirror-schedules",
    "a mirror with schedules",
    400,
    10186,
    "stream mirrors can not also schedule messages",
    lambda o: {"mirror": {"name": o}, "allow_msg_schedules": True},
)

_refused(
    "mirror-atomic",
    "a mirror with batches",
    400,
    10198,
    "stream mirrors can not also use atomic publishing",
    lambda o: {"mirror": {"name": o}, "allow_atomic": True},
)

_refused(
    "source-schedules",
    "sources beside schedules",
    400,
    10187,
    "stream source can not also schedule messages",
    lambda o: {"sources": [{"name": o}], "allow_msg_schedules": True},
)


@rows("refused.loop", "refused: streams that are each other's sources")
async def loop(b: Bench) -> None:
    one, two = b.name(), b.name()
    await b.stream(name=one, subjects=[f"{one}.x"], sources=[{"name": two}])
    await b.stream_refused(
        name=two,
        subjects=[f"{two}.x"],
        sources=[{"name": one}],
        code=500,
        err_code=10052,
        text="detected cycle",
    )
