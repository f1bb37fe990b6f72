"""A ledger with something in every table, to be damaged, and every way of reading it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agents_ledger import Ask, Compaction, Ledger, LedgerError, Queue, Turn
from agents_ledger.exporters.exporting import Export, Form
from agents_ledger.importers.pipeline import import_paths
from tests.builders import a_call, a_full_turn, a_message
from tests.importers.claude_log import Log
from tests.tasking import a_task, calls, says, tasks_of

LONG = "A long answer, so that it takes pages of its own. "
FORMS: tuple[Form, ...] = ("markdown", "json", "messages", "html")


def make(path: Path, folder: Path, *, turns: int = 40) -> dict[str, Turn]:
    """Record and import; all turns as they are, by id."""
    with Ledger.open(str(path)) as ledger:
        first = ledger.record("main", "How do I begin?", "Like this.", system_prompt="Be brief.")
        ledger.record("main", **a_full_turn())
        for number in range(turns):
            answer = f"answer {number} " + (LONG * (number * 7) if number % 5 == 0 else "")
            steps = [a_call(id=f"c{number}", result_json='{"text": "found it"}')]
            ledger.record("main", f"question {number}", answer, steps=steps, model="m")
        last = ledger.record("main", "a subagent", "r", steps=[a_call(spawned_session_label="sub")])
        ledger.record("sub", "find it", "found")
        ledger.record("main", compaction=Compaction("What was said.", first.id, last.id))
        ledger.record("main", "and now?", "go on")
        ledger.record("main", "this fails", status="failed", error="no")
        ledger.fork(first.id, label="side")
        for number in range(turns // 4):
            ledger.record("side", f"beside {number}", LONG * number)
        ledger.alias("nick", "main")
        ledger.annotate("main", title="A title", starred=True)
        _fill_the_rest(ledger, folder)
        ledger._core.index(least=1)
        return whole(ledger)


def _fill_the_rest(ledger: Ledger, folder: Path) -> None:
    """An import, a turn on top of it, a task, and a queue."""
    log = Log(folder)
    for number in range(6):
        log.user(f"a{number}", f"imported question {number}")
        log.assistant(f"b{number}", {"type": "text", "text": f"imported answer {number}"})
    log.path.write_text("\n".join(log.lines) + "\n")
    import_paths(ledger, [log.path])
    imported = next(s.label for s in ledger.sessions() if s.origin == "claude-code")
    ledger.record(imported, "a turn of ours", "on an imported one")
    tasks_of(ledger).save(
        a_task(), says("m1", "user", "Hello", 1100), says("m2", "assistant", "Hi", 1200), calls()
    )
    Queue(ledger).enqueue("main", Ask((a_message("later"),)))


def whole(ledger: Ledger) -> dict[str, Turn]:
    """Every turn with all it consists of, by id."""
    _, rows = ledger.query("SELECT id FROM turns ORDER BY id")
    return {turn_id: ledger.get_turn(turn_id) for (turn_id,) in rows}


def readings(ledger: Ledger, label: str = "main") -> Iterator[tuple[str, Callable[[], object]]]:
    """Every verb that reads what was recorded."""
    yield "audit", ledger.audit
    yield "sessions", ledger.sessions
    yield "session", lambda: ledger.session(label)
    yield "thread", lambda: [turn.query for turn in ledger.thread(label).turns]
    yield "turn", lambda: ledger.get_turn(label)
    yield "side", lambda: ledger.thread("side")
    yield "history", lambda: ledger.history(label)
    yield "aliases", ledger.aliases
    yield "tree", lambda: ledger.tree(label)
    yield "roots", ledger.roots
    yield "children", lambda: ledger.children(label)
    yield "search", lambda: ledger.search("answer")
    yield "relevance", lambda: ledger.search("question", order="relevance")
    yield "files", lambda: ledger.files("first.py")
    yield "context", lambda: ledger.context(label).as_anthropic()
    yield "events", lambda: ledger.events(label)
    yield "digest", lambda: ledger.digest(since=0, until=1 << 42)
    yield "compare", lambda: ledger.compare("main", "side")
    yield "compactions", lambda: ledger.compactions(label)
    yield "config", lambda: ledger.effective_config(label)
    yield "prompt", lambda: ledger.system_prompt(label)
    yield "usage", ledger.usage
    yield "tools", ledger.tools
    yield "permissions", ledger.review_permissions
    yield "queue", lambda: Queue(ledger).entries("main")
    for form in FORMS:
        yield f"export {form}", partial(_exported, ledger, label, form)


def _exported(ledger: Ledger, label: str, form: Form) -> str:
    return "".join(Export(ledger, label, form))


def escapes(ledger: Ledger) -> Iterator[tuple[str, Exception]]:
    """The verbs that end with an error that is none of ours."""
    for name, read in readings(ledger):
        try:
            read()
        except LedgerError:
            continue
        except Exception as error:
            yield name, error
