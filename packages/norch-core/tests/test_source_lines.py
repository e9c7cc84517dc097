"""Which line of a program is said to have called norch: the oracle is the line number in this file."""

import contextlib
import functools
import sys
import threading

import norch
from norch.source_lines import Line, here


def line_now():
    return sys._getframe(1).f_lineno


def test_a_line_is_that_of_the_caller():
    found, expected = here(), line_now()
    assert isinstance(found, Line)
    assert (found.filename, found.lineno, found.function) == (__file__, expected, "test_a_line_is_that_of_the_caller")
    assert str(found) == f"test_source_lines.py:{expected}"
    assert found.text() == "found, expected = here(), line_now()"


def test_depth_passes_over_frames_of_ones_own():
    def called():
        return here(depth=2)

    found, expected = called(), line_now()
    assert found.lineno == expected


def test_a_call_over_several_lines_is_where_it_stands():
    first = line_now()
    found = [
        None,
        here(),
    ][1]
    assert found.lineno == first + 3


def test_lines_compare_by_file_and_number():
    a, b = here(), here()
    assert a == b
    assert len({a, b}) == 1
    assert a != here()


def test_norch_and_the_standard_library_are_passed_over():
    seen = []

    @contextlib.contextmanager
    def noting():
        seen.append(here())  # a frame of this file between contextlib's
        yield

    with noting():
        pass
    assert seen[0].text().startswith("seen.append(here())")
    seen = functools.reduce(lambda *_: here(2), [1, 2])
    assert seen.text() == "seen = functools.reduce(lambda *_: here(2), [1, 2])"


def test_called_by_norch_alone_there_is_no_line():
    seen = []
    thread = threading.Thread(target=functools.partial(_note, seen))
    thread.start()
    thread.join()
    assert seen == [None]


def _note(seen):
    seen.append(here(2))


def test_a_line_inside_of_norch():
    """A hook of a gradient is called by norch, which is called by this file."""
    seen = []
    x = norch.ones(2, requires_grad=True)
    x.register_hook(lambda g: seen.append(here(2)))
    x.sum().backward()
    assert seen[0].text() == "x.sum().backward()"


def test_code_without_a_file_has_no_text():
    scope = {"here": here}
    exec(compile("\nfound = here()", "<made up>", "exec"), scope)
    assert (str(scope["found"]), scope["found"].text()) == ("<made up>:2", "")
