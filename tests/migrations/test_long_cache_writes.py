"""Migration 25: cache writes that are kept for an hour have a count of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agents_ledger import Ledger, Usage
from agents_ledger.importers.pipeline import rederive
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths
from tests.migrations.earlier import downgrade
from tests.raw import Raw

USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 1000}
KEPT = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000}


def test_a_ledger_of_the_version_before_gets_the_count_from_its_source_records(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    address = new_address()
    log = Log(tmp_path)
    log.user("a1", "Question?")
    log.assistant("a2", text("Answer."), usage={**USAGE, "cache_creation": KEPT})
    with Ledger.open(address) as ledger:
        import_paths(ledger, log.save())
        ledger.record("main", "q", "r")
        ledger.summarise()
        wanted = ledger.usage().total
    downgrade(address, to=24)
    with Raw(address) as raw:  # the hash of what was derived had no such count in it
        raw.execute("UPDATE turns SET request_hash = NULL WHERE projected = 1")

    with Ledger.open(address) as ledger:
        assert ledger.audit() == ()
        assert ledger.usage().total.long_cache_write_tokens == 0
        rederive(ledger)
        ledger.summarise()
        assert ledger.audit() == ()
        assert ledger.usage().total == wanted
    assert wanted.long_cache_write_tokens == 1000


def test_a_file_that_nobody_has_upgraded_yet_says_what_was_used(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    with Ledger.open(address) as ledger:
        ledger.record("main", "q", "r", usage=Usage(10, 5))
        ledger.summarise()
    downgrade(address, to=24)

    with Ledger.open(address, read_only=True) as ledger:
        assert ledger.usage().total.total_tokens == 15
        assert ledger.thread("main").turns[0].long_cache_write_tokens is None
        assert ledger.audit() == ()
