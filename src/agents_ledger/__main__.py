"""`agents-ledger` and `python -m agents_ledger`: the command line."""

import sys

from agents_ledger.cli import INTERRUPTED


def main() -> None:
    """Run the command line; an interrupt ends it quietly, also while its modules are imported."""
    try:
        from agents_ledger.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
