"""What the harnesses stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trust import harness


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("0::/", {}, []),
        ("0::/", {"memory.max": "max", "memory.current": "7"}, []),
        ("0::/", {"memory.max": "900", "memory.current": "700"}, [200]),
        ("0::/a/b", {"a/memory.max": "900", "a/memory.current": "700"}, [200]),
        (
            "4:memory:/a",
            {"memory/a/memory.limit_in_bytes": "900", "memory/a/memory.usage_in_bytes": "1"},
            [899],
        ),
    ],
)
def test_memory_is_what_the_system_and_each_group_have_left(
    tmp_path: Path, groups: str, files: dict[str, str], left: list[int]
) -> None:
    said = {
        "meminfo": "MemFree: 1 kB\nMemAvailable:    2 kB\n",
        "self/cgroup": f"1:cpu:/\n{groups}",
    }
    for name, text in (said | files).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")

    assert list(harness._left(tmp_path, tmp_path)) == [2048, *left]


def test_nothing_is_kept_in_memory_that_is_scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "_left", lambda: iter([harness.ROOM + 1, harness.ROOM]))

    assert harness.memory() is None
