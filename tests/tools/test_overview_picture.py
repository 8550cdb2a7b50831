"""The picture of the README is the one that its script draws."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tools import draw_overview


def test_the_committed_picture_is_what_the_script_draws() -> None:
    assert draw_overview.PICTURE.read_text(encoding="utf-8") == draw_overview.drawing()


def test_every_word_stands_inside_the_picture_and_nothing_is_fetched() -> None:
    root = ET.fromstring(draw_overview.drawing())
    places = [
        (float(each.attrib["x"]), float(each.attrib["y"]))
        for each in root.iter()
        if each.tag.endswith("}text")
    ]
    assert len(places) > 20
    assert all(0 < x < draw_overview.WIDTH and 0 < y < draw_overview.HEIGHT for x, y in places)
    assert not [each for each in root.iter() if any(name.endswith("href") for name in each.attrib)]
