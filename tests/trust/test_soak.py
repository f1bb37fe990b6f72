"""What was done counts across runs; what was cut off does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.trust import harness
from tests.trust.soak import State, Total
from tests.waiting import until

JOB = "I/O faults"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="processes are forked and killed")


def total(folder: Path) -> Total:
    state = folder / "state.json"
    return msgspec.json.decode(state.read_bytes(), type=State).totals[JOB]


def start(folder: Path, minutes: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.trust.soak", "--only", JOB, "--workers", "1"]
    command += ["--minutes", str(minutes), "--folder", str(folder)]
    return subprocess.Popen(command, cwd=harness.ROOT, start_new_session=True)


def is_harness_running(soak: subprocess.Popen[bytes]) -> bool:
    threads = Path(f"/proc/{soak.pid}/task")
    return any(file.read_text() for file in threads.glob("*/children"))


@pytest.mark.exhaustive
def test_a_run_counts_on_from_the_last_one_and_sigterm_waits_for_what_is_under_way(
    tmp_path: Path,
) -> None:
    assert start(tmp_path, 0.001).wait() == 0
    with start(tmp_path, 60) as soak:
        until(lambda: is_harness_running(soak))
        soak.send_signal(signal.SIGTERM)

    assert soak.returncode == 0
    counted = total(tmp_path)
    assert counted.runs == 2
    assert counted.done == 800
    assert sum(counted.notes.values()) >= counted.done


def test_what_ctrl_c_cuts_off_is_no_finding_and_does_not_count(tmp_path: Path) -> None:
    with start(tmp_path, 60) as soak:
        until(lambda: is_harness_running(soak))
        os.killpg(soak.pid, signal.SIGINT)

    assert soak.returncode == 0
    assert not (tmp_path / "state.json").exists()
