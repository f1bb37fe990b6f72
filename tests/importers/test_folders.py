"""Whether a project is in a folder, however both are written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from agents_ledger.importers import project_folders
from agents_ledger.importers.port.source import FolderTrace
from agents_ledger.importers.project_folders import ExcludedFolder


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("{}/link/secret", "{}/real/secret/in"),
        ("{}/real/secret", "{}/link/secret"),
        ("{}//real/x/../secret/", "{}/real/secret"),
        ("{}/real/secret", "{}/real/./x/..//secret"),
        ("/u/caf\u00e9", "/u/cafe\u0301"),
        ("C:\\Users\\dev\\secret", "c:\\users\\dev\\secret\\in"),
        ("C:\\Users\\dev\\secret", "/c:/Users/dev/secret"),
        ("c:/Users/dev/secret/", "\\\\?\\C:\\Users\\dev\\secret"),
    ],
)
def test_a_folder_is_the_same_however_it_is_written(
    tmp_path: Path, folder: str, project: str
) -> None:
    (tmp_path / "real" / "secret").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert (
        ExcludedFolder.of(folder.format(tmp_path)).contains_project(project.format(tmp_path))
        is True
    )


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("/home/dev/secret", "/home/dev/secretary"),
        ("/home/dev/secret", "/home/dev/Secret"),
        ("C:\\Users\\dev\\secret", "C:\\Users\\dev\\secret2"),
        ("/home/dev/secret", "\x00/home/dev/secret"),
    ],
)
def test_another_folder_is_another(folder: str, project: str) -> None:
    assert ExcludedFolder.of(folder, folds_case=False).contains_project(project) is False


def test_case_is_folded_where_the_system_folds_it() -> None:
    assert ExcludedFolder.of("/Users/dev/Secret", folds_case=True).contains_project(
        "/users/dev/secret"
    )
    assert ExcludedFolder.of("/Users/dev/Secret", folds_case=True).contains_project(
        FolderTrace("dashes", "-users-dev-secret")
    )


def test_dashes_mean_the_folder_that_is_there_and_else_are_in_doubt(tmp_path: Path) -> None:
    (tmp_path / "a-b").mkdir()
    (tmp_path / "app").mkdir()
    (tmp_path / "till" / "3").mkdir(parents=True)
    name = project_folders.dashed(str(tmp_path))

    def holds(folder: str, dashes: str) -> bool | None:
        return ExcludedFolder.of(str(tmp_path / folder)).contains_project(
            FolderTrace("dashes", f"{name}-{dashes}")
        )

    assert holds("a/b", "a-b") is False
    assert holds("app", "app-2") is None
    assert holds("app", "app") is True
    assert holds("app", "apple") is False
    assert holds("gone", "gone") is True
    assert holds("till", "till-3") is True
    assert holds("till", "till-3-gone") is True
    (tmp_path / "app-2").mkdir()
    assert holds("app", "app-2") is False
    assert holds("app", "app-2-gone") is False
    (tmp_path / "app" / "2").mkdir()
    assert holds("app", "app-2") is None


def test_a_hash_of_a_folder_is_known_with_either_drive_letter() -> None:
    made = hashlib.md5(b"c:\\Users\\dev\\secret", usedforsecurity=False).hexdigest()

    assert (
        ExcludedFolder.of("C:\\Users\\dev\\secret\\").contains_project(FolderTrace("md5", made))
        is True
    )
    assert ExcludedFolder.of("C:\\Users\\dev").contains_project(FolderTrace("md5", made)) is False
