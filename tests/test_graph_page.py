"""The page of norch.graph in a browser: clicked, turned, dragged, searched, by keys, printed, without JavaScript."""

import pytest

import norch
from norch import nn
from norch.nn import functional as F


@pytest.fixture(scope="module")
def html():
    norch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    loss = F.cross_entropy(model(norch.randn(5, 3)), norch.tensor([0, 1, 0, 1, 0]))
    loss.backward(retain_graph=True)
    return norch.graph(loss, params=model).html(layout="norch")


@pytest.fixture
def file(html, tmp_path):
    path = tmp_path / "graph.html"
    path.write_text(html, encoding="utf-8")
    return path


def shown(page):
    """The texts of the articles that can be seen."""
    script = "[...document.querySelectorAll('article')].filter(a => a.offsetHeight).map(a => a.innerText)"
    return page.evaluate(script)


def number_of(page, title):
    return page.evaluate(
        f"[...document.querySelectorAll('.node')].find(g => g.textContent.includes({title!r})).dataset.node"
    )


def view_box(page):
    return page.evaluate("document.querySelector('#view svg').getAttribute('viewBox').split(' ').map(Number)")


def test_it_begins_with_the_output_and_loads_nothing(browser, file):
    page = browser.open(file)
    node, derivative = shown(page)
    assert node.startswith("loss = cross_entropy op #")
    assert "Derivative of cross_entropy" in derivative
    assert page.requests == [file.as_uri()]
    assert page.errors == []


def test_a_click_shows_the_derivative_the_line_and_what_is_kept(browser, file):
    page = browser.open(file)
    tanh = number_of(page, "tanh")
    page.click(f"#node-{tanh}")
    node, derivative = shown(page)
    assert node.startswith("tanh op #")
    assert "Keeps alive 80 B" in node  # 5 * 4 * 4
    assert "(5, 4) float32, cpu" in node
    assert "its result" in node
    assert "for x" in derivative
    assert "1 - y" in derivative  # the rule: g * (1 - y * y), in some form
    assert page.evaluate("document.querySelectorAll('.node.chosen').length") == 1
    assert page.evaluate("document.querySelectorAll('.edge.on').length") == 2
    assert page.evaluate("location.hash") == f"#n{tanh}"
    leaf = number_of(page, "0.bias")
    page.click(f"#node-{leaf}")
    (node,) = shown(page)
    assert "gradient\n2-norm " in node
    page.click("article.shown a[href^='#n']")  # what uses it
    assert shown(page)[0].startswith("linear op")


def test_the_wheel_zooms_where_it_points_and_a_drag_moves(browser, file):
    page = browser.open(file)
    before = view_box(page)
    x, y = page.middle("#node-1")
    page.wheel(x, y, -400)
    page.wait_for(f"document.querySelector('#view svg').getAttribute('viewBox') != {' '.join(map(str, before))!r}")
    after = view_box(page)
    assert after[2] < before[2] / 2
    assert page.middle("#node-1") == pytest.approx((x, y), abs=2.5)  # a wheel is at whole pixels
    page.drag(x, y, 60, 40)
    assert page.middle("#node-1") == pytest.approx((x + 60, y + 40), abs=2.5)
    assert shown(page)[0].startswith("loss")  # a drag is no click
    page.click("#all")
    boxes = page.evaluate(
        "[...document.querySelectorAll('.node')].map(g => g.getBoundingClientRect()).map(r => [r.top, r.bottom])"
    )
    assert all(0 <= top < bottom <= 800 for top, bottom in boxes)
    page.click("#closer")
    assert view_box(page)[2] < before[2]


def test_search(browser, file):
    page = browser.open(file)
    page.press("/")
    page.write("linear")
    assert page.evaluate("document.querySelector('#found').textContent") == "2 found"
    assert page.evaluate("document.querySelectorAll('.node.hit').length") == 2
    page.press("Enter")
    first = shown(page)[0]
    page.press("Enter")
    second = shown(page)[0]
    assert first.startswith("linear op")
    assert second.startswith("linear op")
    assert first != second
    assert page.evaluate("document.querySelector('#found').textContent") == "2 of 2"
    page.press("Escape")
    assert page.evaluate("document.querySelectorAll('.hit').length") == 0
    page.press("/")
    page.write("no such node")
    assert page.evaluate("document.querySelector('#found').textContent") == "0 found"
    page.press("Enter")
    assert page.errors == []


def test_keys(browser, file):
    page = browser.open(file)
    page.press("ArrowUp")
    assert shown(page)[0].startswith("linear op")
    page.press("ArrowUp")
    page.press("ArrowDown")
    assert shown(page)[0].startswith("linear op")
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert shown(page)[0].startswith("loss")
    assert page.evaluate("document.activeElement.getAttribute('href')") == page.evaluate("location.hash")
    assert page.evaluate("document.querySelectorAll('#view a[tabindex=\"0\"]').length") == 1
    before = view_box(page)
    page.press("+")
    assert view_box(page)[2] < before[2]
    page.press("0")
    page.press("ArrowLeft")
    assert not shown(page)[0].startswith("loss")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 400])
def test_light_and_dark_at_two_widths(browser, file, width, dark):
    page = browser.open(file, width=width, dark=dark)
    ink, paper = page.evaluate(
        "[getComputedStyle(document.querySelector('#view text')).fill, getComputedStyle(document.body).backgroundColor]"
    )
    light = [sum(map(int, color[4:-1].split(","))) for color in (ink, paper)]
    assert (light[0] > 500) == dark
    assert (light[1] > 500) != dark
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    view, about = page.evaluate("['view', 'about'].map(i => document.getElementById(i).getBoundingClientRect().top)")
    assert (about > view + 100) == (width == 400)  # below it on a narrow page
    page.click(f"#node-{page.evaluate('document.querySelector(`.output`).dataset.node')}")


def test_what_a_screen_reader_is_told(browser, file):
    page = browser.open(file)
    page.call("Accessibility.enable")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    names = {(n["role"]["value"], n.get("name", {}).get("value", "")) for n in tree if not n["ignored"]}
    links = {name for role, name in names if role == "link"}
    assert any(name.startswith("0.weight") for name in links)  # the picture's nodes are links
    assert ("searchbox", "search nodes") in names
    assert {"zoom in", "zoom out"} <= {name for role, name in names if role == "button"}


def test_an_address_with_a_node(browser, file):
    page = browser.open(file.as_uri() + "#n1")
    assert "#1\n" in shown(page)[0]


def test_without_javascript_and_printed_all_is_there(browser, file):
    page = browser.open("about:blank")
    page.look(1000, script=False)
    page.go(file)
    titles = "[...document.querySelectorAll('article h2')].filter(h => h.offsetHeight).length"
    count = page.evaluate("document.querySelectorAll('.node').length")
    assert page.evaluate(titles) == count > 7
    assert page.evaluate("document.querySelector('.tools').offsetHeight") == 0
    link = page.evaluate("document.querySelector('#view a').getAttribute('href')")
    assert page.evaluate(f"document.querySelector('{link}').offsetHeight") > 0
    page = browser.open(file)
    page.look(1000, media="print")
    assert page.evaluate(titles) == count
    assert page.evaluate("document.querySelector('#view svg').getBoundingClientRect().height") > 300
    assert len(page.pdf()) > 10_000


def test_a_graph_of_hundreds_of_nodes_begins_readable(browser, tmp_path):
    x = norch.ones(2, 4)
    for _ in range(60):
        x = F.linear(x, norch.ones(4, 4, requires_grad=True), norch.ones(4, requires_grad=True)).tanh()
    norch.graph(x.sum()).save(tmp_path / "graph.html", layout="norch")
    page = browser.open(tmp_path / "graph.html")
    assert page.evaluate("document.querySelectorAll('.node').length") > 240
    height = page.evaluate("document.querySelector('.output text').getBoundingClientRect().height")
    assert height > 6
    page.press("/")
    page.write("#3")
    page.press("Enter")
    seen = page.evaluate("document.querySelector('.chosen').getBoundingClientRect().toJSON()")
    assert 0 < seen["top"] < seen["bottom"] < 800


def test_a_notebook_shows_the_page_in_a_frame(browser, tmp_path):
    x = norch.ones(3, requires_grad=True)
    frame = norch.graph((x * 2).sum())._repr_html_()
    (tmp_path / "cell.html").write_text(f"<!doctype html><p>a cell</p>{frame}", encoding="utf-8")
    page = browser.open(tmp_path / "cell.html")
    inside = "document.querySelector('iframe').contentDocument"
    assert page.evaluate(f"{inside}.querySelectorAll('.node').length") == 3
    x, y = page.evaluate(
        f"(() => {{ const f = document.querySelector('iframe').getBoundingClientRect(), "
        f"r = {inside}.querySelector('#node-1').getBoundingClientRect();"
        "return [f.x + r.x + r.width / 2, f.y + r.y + r.height / 2] })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x, y, button="left", clickCount=1)
    assert page.evaluate(f"{inside}.querySelector('article.shown h2').textContent") == "x leaf #1"
    assert page.errors == []
