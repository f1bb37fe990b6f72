"""Aider: runs of a Markdown history, with token reports, edits and the times of inputs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from agents_ledger import Ledger
from tests.importers.helping import import_paths, result

FIRST = """
# aider chat started at 2026-03-01 10:00:00

> Main model: claude-opus-5 with diff edit format
> Git repo: .git with 3 files

#### /add app.py
> Added app.py to the chat

#### Fix the bug in app.py.
#### Keep it short.

I changed the comparison.

Nothing else was wrong.

> Tokens: 2.5k sent, 1.2k cache hit, 86 received. Cost: $0.01 message, $0.01 session.
> Applied edit to app.py
"""
SECOND = """
# aider chat started at 2026-03-02 09:00:00

#### Thanks.

You are welcome.
"""
INPUTS = """
# 2026-03-01 10:02:00.500000
+/add app.py

# 2026-03-01 10:03:00.000000
+Fix the bug in app.py.
+Keep it short.
"""


def history(folder: Path, text: str, inputs: str | None = INPUTS) -> Path:
    (folder / ".aider.chat.history.md").write_text(text)
    if inputs is not None:
        (folder / ".aider.input.history").write_text(inputs)
    return folder


def test_a_turn_has_prompt_answer_tokens_and_files(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, history(tmp_path, FIRST))
    (session,) = ledger.sessions()
    (turn,) = ledger.thread(session.label).turns
    contents = [message.content for message in turn.messages if message.role != "system"]
    assert contents == [
        "Fix the bug in app.py.\nKeep it short.",
        "I changed the comparison.\n\nNothing else was wrong.",
    ]
    assert (turn.input_tokens, turn.cached_input_tokens, turn.output_tokens) == (2500, 1200, 86)
    assert [hit.turn_id for hit in ledger.files("app.py", action="written").touches] == [turn.id]
    assert turn.started_at == datetime(2026, 3, 1, 10, 3).timestamp() * 1000
    assert (session.origin, turn.workspace_path) == ("aider", str(tmp_path))


def test_each_run_is_a_session_and_growing_changes_nothing_before(
    ledger: Ledger, tmp_path: Path
) -> None:
    import_paths(ledger, history(tmp_path, FIRST))
    before = result(ledger)["turns"]
    import_paths(ledger, history(tmp_path, FIRST + SECOND))
    assert len(ledger.sessions()) == 2
    assert set(before) < set(result(ledger)["turns"])
    again = import_paths(ledger, tmp_path)
    assert (again.counts.imported, again.counts.upserted) == (0, 0)


def test_without_inputs_the_time_is_that_of_the_run(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, history(tmp_path, FIRST, inputs=None))
    (session,) = ledger.sessions()
    started = datetime(2026, 3, 1, 10, 0).timestamp() * 1000
    assert ledger.get_turn(session.label).started_at == started
    import_paths(ledger, history(tmp_path, FIRST))
    assert ledger.get_turn(session.label).started_at == started + 180_000
