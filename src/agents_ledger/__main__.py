"""`agents-ledger` and `python -m agents_ledger`: the command line."""

import gc
import sys
from typing import NoReturn

from agents_ledger.cli import INTERRUPTED, REFUSED

LONG_RUNNING = {"up", "serve", "watch", "mcp", "import"}
# Net allocations before the first collection. Importing modules makes no garbage; at Python's own
# threshold, looking for it took a twelfth of the CPU of a command.
GARBAGE_THRESHOLD = 100_000


def main() -> None:
    """Run the command line; an interrupt ends it quietly, also while its modules are imported."""
    words = sys.argv[1:]
    # A hook loads neither click nor the ledger: an agent waits for it.
    if "hook" in words[:1] + words[2:3] and not {"-h", "--help"}.intersection(words):
        from agents_ledger.integrations.agents.hook import main as hook

        sys.exit(hook(words))
    if not LONG_RUNNING.intersection(words):
        gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        from agents_ledger.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        _report_missing_click(error)
    except SystemExit as end:
        _exit_quickly(end.code)
        raise


def _report_missing_click(error: ModuleNotFoundError) -> NoReturn:
    """End as with any other missing package. cli/terminal.py prints through click itself."""
    from agents_ledger.model.errors import MissingExtra
    from agents_ledger.model.installation.extras import needed

    try:
        with needed("web", "the command"):
            raise error
    except MissingExtra as missing:
        sys.stderr.write(f"error: {missing}\nhint: {missing.hint}\n")
        sys.exit(REFUSED)


def _exit_quickly(code: object) -> None:
    """End the process, unless other threads run. The interpreter would free every object first,
    which took `chat` 30 of 300 ms."""
    import atexit
    import os
    import threading

    if isinstance(code, int) and threading.active_count() == 1:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
