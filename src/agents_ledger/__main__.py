"""`python -m agents_ledger` runs the command line."""

from agents_ledger.cli.main import main

if __name__ == "__main__":
    main()
