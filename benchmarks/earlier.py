"""The sources of the commit that figures are compared with."""

from __future__ import annotations

import subprocess
from pathlib import Path

BEFORE = "1ae75151"  # on PostgreSQL, turns took 17 round trips, and each writer a transaction
HERE = Path(__file__).parent.parent


def earlier_source(tree: Path) -> Path | None:
    """Its folder `src`, unpacked; None if this clone does not have the commit."""
    archive = subprocess.run(
        ["git", "archive", BEFORE, "src"], check=False, cwd=HERE, stdout=subprocess.PIPE
    )
    if archive.returncode:
        return None
    tree.mkdir(exist_ok=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    return tree / "src"
