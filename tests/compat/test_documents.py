"""docs/compatibility.md says what the code's tables say."""

from __future__ import annotations

from tests.compat import documents


def test_the_document_is_what_the_code_says() -> None:
    assert documents.DOCUMENT.read_text(encoding="utf-8") == documents.text()


def test_a_field_that_is_refused_is_not_called_supported() -> None:
    rows = documents._fields({"a": "", "b": "", "c": "", "d": ""}, _reader, {}, {"b": (), "c": ("none",)})
    assert rows == [("a", "yes", ""), ("b", "no", ""), ("c", "only none", ""), ("d", "no", "")]


def _reader(data: dict[str, object]) -> None:
    for name in ("a", "b", "c"):
        data.get(name)
