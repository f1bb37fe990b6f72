"""`python -m agents_ledger` is the command `agents-ledger`."""

from agents_ledger.cli.main import main

if __name__ == "__main__":
    main()
