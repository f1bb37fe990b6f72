"""Install pinned requirements and this project into a virtual environment, with progress.

Uses uv if it is on PATH, otherwise pip. Needs only the standard library of any Python 3, because it
is what reports that Python is too old.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

OLDEST = (3, 11)
POLL_S = 0.25
PLAIN_S = 5  # between two lines of progress where they cannot be overwritten
LOG_LINES = 20  # of pip, printed if it fails


class Progress:
    """One line that is overwritten on a terminal, and repeated now and then elsewhere."""

    def __init__(self) -> None:
        self._printed = ("", 0.0)

    def show(self, text: str) -> None:
        last, at = self._printed
        is_terminal = sys.stdout.isatty()
        if text == last or not (is_terminal or time.monotonic() - at > PLAIN_S):
            return
        self._printed = (text, time.monotonic())
        print(f"\r{text}  " if is_terminal else text, end="" if is_terminal else "\n", flush=True)

    def end(self) -> None:
        if sys.stdout.isatty() and self._printed[0]:
            print(flush=True)


def installed(venv: Path) -> int:
    return sum(1 for _ in venv.glob("**/site-packages/*.dist-info"))


def with_uv(uv: str, venv: Path, python: Path, requirements: Path) -> bool:
    """Install with uv. False: uv is configured differently from pip, so pip may succeed."""
    install = [uv, "pip", "install", "--python", str(python)]
    steps = [
        [*install, "--require-hashes", "--requirement", str(requirements)],
        [*install, "--quiet", "--no-deps", "--no-build-isolation", "--editable", "."],
    ]
    if not python.exists():
        steps.insert(0, [uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
    for step in steps:
        process = subprocess.Popen(step, stderr=subprocess.PIPE, text=True, encoding="utf-8")
        assert process.stderr
        for line in process.stderr:
            if not line.startswith((" + ", " ~ ")):  # every package on a line of its own
                print(f"  {line.rstrip()}", flush=True)
        if process.wait():
            return False
    return True


def with_pip(venv: Path, python: Path, requirements: Path) -> int:
    if not (python.exists() and runs([str(python), "-m", "pip", "--version"])):
        make_venv(venv, python)
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    # Python compiles what it imports; compiling everything here would take half a minute.
    install += ["--no-compile", "--progress-bar", "off"]
    code = follow([*install, "--require-hashes", "--requirement", str(requirements)], venv)
    return code or follow([*install, "--no-build-isolation", "--editable", "."], venv)


def make_venv(venv: Path, python: Path) -> None:
    """Create the environment. Some systems ship venv without pip: their own pip installs it."""
    if runs([sys.executable, "-m", "venv", str(venv)]):
        return
    for step in (
        ["-m", "venv", "--clear", "--without-pip", str(venv)],
        ["-m", "pip", "--python", str(python), "install", "-qq", "pip"],
    ):
        subprocess.run([sys.executable, *step], check=True)


def runs(words: "list[str]") -> bool:
    return not subprocess.run(words, check=False, capture_output=True).returncode


def follow(words: "list[str]", venv: Path) -> int:
    """Run pip and show how far it is; if it fails, print the end of its output."""
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # each line as it is written
    )
    log: list[str] = []
    reader = threading.Thread(target=lambda: log.extend(process.stdout or ()))
    reader.start()
    progress, before = Progress(), installed(venv)
    while reader.is_alive():
        reader.join(POLL_S)
        fetched = sum(line.startswith(("Collecting ", "Processing ")) for line in log)
        new = installed(venv) - before
        if fetched:
            what = (
                f"{new} of {fetched} packages installed" if new else f"{fetched} packages fetched"
            )
            progress.show(f"  {what}")
    progress.end()
    code = process.wait()
    if code:
        print("".join(log[-LOG_LINES:]), file=sys.stderr)
    return code


def main(venv: Path, requirements: Path) -> int:
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        print(f"Python {oldest} or newer is needed: make PYTHON=python3.12 ...", file=sys.stderr)
        return 1
    python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    uv, started = shutil.which("uv"), time.monotonic()
    tool = "uv" if uv else "pip"
    print(f"Installing {requirements} into {venv} with {tool}", flush=True)
    if uv and not with_uv(uv, venv, python, requirements):
        print("uv failed; trying pip", flush=True)
        uv = None
    code = 0 if uv else with_pip(venv, python, requirements)
    if not code:
        print(f"Installed in {time.monotonic() - started:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
