"""Requests of any kind to the HTTP API: the server never fails, and the ledger stays sound."""

from __future__ import annotations

from agents_ledger.cli.servers.demonstration import Demonstration
from tests.trust import harness
from tests.trust.harness import Options, Outcome
from tests.web.conftest import Running
from tests.web.fuzz import fuzz


def requests(options: Options) -> Outcome:
    """Run the harness."""
    with harness.workplace() as place:
        running = Running(str(place / "ledger.db"))
        try:
            Demonstration(running.ledger).record()
            findings = []
            try:
                fuzz(running, options.count, options.seed)
            except BaseExceptionGroup as failed:
                findings = [str(failure) for failure in failed.exceptions]
            except Exception as failure:
                findings = [repr(failure)]
            findings += [str(finding) for finding in running.ledger.audit()]
            return Outcome(options.count, findings)
        finally:
            running.stop()


if __name__ == "__main__":
    harness.main(requests)
