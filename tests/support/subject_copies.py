"""A subject index by way of its snapshot."""

from __future__ import annotations

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.state.subject_index import SubjectIndex


def parts_of(index: SubjectIndex) -> list[bytes]:
    view = index.view()
    try:
        return list(view.parts())
    finally:
        view.close()


def copy_of(index: SubjectIndex) -> SubjectIndex:
    found = SubjectIndex()
    for part in parts_of(index):
        found.take(Reader(part))
    return found
