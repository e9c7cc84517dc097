"""The page that norch.profiler writes, in a browser: looked at, clicked, read without scripts."""

import pytest

import norch
from norch.profiler import ProfilerActivity, profile, record_function


@pytest.fixture
def page_file(tmp_path):
    w = norch.randn(64, 64, requires_grad=True)

    def step():
        with record_function("forward <b>"):
            loss = (norch.ones(64, 64) @ w).relu().sum()
        loss.backward()

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        for _ in range(3):
            step()
    path = tmp_path / "profile.html"
    prof.export_html(path)
    return path


WIDTH = "document.querySelector('[title={0}]').getBoundingClientRect().width"


@pytest.mark.parametrize("dark", [False, True])
def test_a_click_zooms_and_says_what_it_took(browser, page_file, dark):
    page = browser.open(page_file, dark=dark)
    whole = page.evaluate(WIDTH.format("backward"))
    assert 0 < whole < page.evaluate(WIDTH.format("all"))
    page.click("[title=backward]")
    assert page.evaluate(WIDTH.format("backward")) == page.evaluate(WIDTH.format("all"))
    assert page.evaluate(WIDTH.format("relu_backward")) > 0
    assert not page.evaluate("document.querySelector('[title=relu]')")  # it is elsewhere
    about = page.evaluate("document.getElementById('about').textContent")
    assert "backward" in about
    assert "in 3 calls" in about
    assert "loss.backward()" in about
    page.press("Escape")
    assert page.evaluate(WIDTH.format("backward")) == whole
    ground, text = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    assert (sum(map(int, ground[4:-1].split(","))) < 200) is dark
    assert ground != text
    assert page.errors == []
    assert all(address.startswith("file:") for address in page.requests)


def test_widths_may_be_bytes_and_names_are_found(browser, page_file):
    page = browser.open(page_file)
    page.evaluate("document.querySelector('#find').value = 'RELU', find.oninput()")
    found = page.evaluate("[...document.querySelectorAll('.hit')].map(e => e.title)")
    assert {"relu", "relu_backward"} <= set(found)
    page.evaluate("metric.value = 2, metric.onchange()")
    assert "KB" in page.evaluate("document.getElementById('about').textContent")
    assert page.evaluate("[...document.querySelectorAll('.frame')].some(e => e.title === 'forward <b>')")
    assert page.errors == []


def test_the_table_is_there_without_scripts(browser, page_file):
    page = browser.open("about:blank")
    page.look(800, script=False)
    page.go(page_file)
    page.look(800)
    text = page.evaluate("document.querySelector('pre').textContent")
    assert "Self CPU" in text
    assert "matmul_backward" in text
