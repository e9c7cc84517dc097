"""How many threads there are at first: what the environment says, cores, a container's limit."""

from __future__ import annotations

import os

import pytest

from norch_cpu import threads


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A machine of eight processors, two to a core, of which this process may use all."""
    for n in range(8):
        write(tmp_path, f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list", f"{n % 4},{n % 4 + 4}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.delenv("NORCH_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_processors_of_one_core_count_once(root, monkeypatch):
    assert threads.default_threads(root) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4, 1, 7})
    assert threads.default_threads(root) == 3
    assert threads.cores_among({1, 2, 3}, root / "elsewhere") == 3


def test_lists_of_processors(root):
    write(root, "sys/devices/system/cpu/cpu8/topology/thread_siblings_list", "8-9,12\n")
    assert threads.cores_among({8, 9, 12, 13}, root) == 2


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, 4),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "100000 100000"}, 1),
        ("0::/of/the/host", {"cpu.max": "200000 100000"}, 2),
        ("3:cpu,cpuacct:/a\n2:memory:/a", {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, 2),
        ("3:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 4),
        ("nonsense", {"cpu.max": "what?"}, 4),
    ],
)
def test_a_containers_limit(root, groups, files, expected):
    write(root, "proc/self/cgroup", groups + "\n")
    for name, text in files.items():
        write(root, f"sys/fs/cgroup/{name}", text + "\n")
    assert threads.default_threads(root) == expected


def test_the_environment_says_more(root, monkeypatch):
    for value, expected in (("3", 3), ("2,1", 2), ("", 4), ("many", 4), ("0", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert threads.default_threads(root) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NORCH_NUM_THREADS", "7")
    assert threads.default_threads(root) == 7
