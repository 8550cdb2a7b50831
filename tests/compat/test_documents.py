"""docs/compatibility.md says what the code's tables say."""

from __future__ import annotations

from tests.compat import documents


def test_the_document_is_what_the_code_says() -> None:
    assert documents.DOCUMENT.read_text(encoding="utf-8") == documents.text()


def test_a_field_that_is_not_read_is_not_called_supported() -> None:
    rows = documents._fields({"a": "", "b": ""}, _reader, {})
    assert rows == [("a", "yes", ""), ("b", "no", "")]


def _reader(data: dict[str, object]) -> None:
    data.get("a")
