"""norch.inspection.svg: what is drawn is well-formed, within its page, and has the page's own colours."""

import xml.etree.ElementTree as ET

import pytest

from norch.inspection.svg import COLORS, STYLE, Drawing, escape, text_width

SVG = "{http://www.w3.org/2000/svg}"


def drawn() -> Drawing:
    drawing = Drawing("two boxes & an arrow")
    drawing.rect(10, 20, 30, 40, "blue", tip="<first>")
    drawing.rect(100, 20, 30, 40, dashed=True)
    drawing.line([(40, 40), (70, 30), (100, 40)], "red", arrow=True)
    with drawing.group(id="a", class_="node", data_line='train.py:12 "x"'):
        drawing.text(25, 44, 'a < b & "c"\x00', anchor="middle", mono=True)
    return drawing


@pytest.mark.parametrize("standalone", [False, True])
def test_a_drawing_is_well_formed(standalone: bool) -> None:
    root = ET.fromstring(drawn().svg(standalone))
    assert root.tag == f"{SVG}svg"
    assert root.get("aria-label") == "two boxes & an arrow"
    assert root.find(f"{SVG}g/{SVG}text").text == 'a < b & "c"?'
    assert root.find(f"{SVG}g").get("data-line") == 'train.py:12 "x"'
    assert root.find(f"{SVG}rect/{SVG}title").text == "<first>"
    assert ("prefers-color-scheme" in root.find(f"{SVG}style").text) == standalone


def test_the_page_holds_all_shapes() -> None:
    x, y, width, height = map(float, ET.fromstring(drawn().svg()).get("viewBox").split())
    assert x <= 10 - 8
    assert y <= 20 - 8
    assert x + width >= 130 + 8
    assert y + height >= 60 + 8
    drawing = Drawing()
    drawing.text(0, 0, "wide", anchor="end")
    assert drawing.left == pytest.approx(-text_width("wide", mono=False))
    assert drawing.right == pytest.approx(0)


def test_an_empty_drawing_is_a_picture_too(tmp_path) -> None:
    Drawing("nothing").save(tmp_path / "empty.svg")
    assert ET.parse(tmp_path / "empty.svg").getroot().get("width") == "16"


def test_a_page_can_give_the_style_once() -> None:
    assert STYLE in drawn().svg()
    assert "<style>" not in drawn().svg(style=False)


def test_colours_have_names() -> None:
    for name in COLORS:
        Drawing().rect(0, 0, 1, 1, name)
    with pytest.raises(ValueError, match="no such colour: 'mauve'; there are blue, orange"):
        Drawing().rect(0, 0, 1, 1, "mauve")


def test_what_xml_cannot_hold_is_replaced() -> None:
    assert escape("a\x07\ud800<b>\n") == "a??&lt;b&gt;\n"
