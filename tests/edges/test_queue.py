"""queue and audit --permissions, as a user calls them."""

from __future__ import annotations

from agents_ledger import Ask, Ledger, Message, Queue
from tests.builders import a_call
from tests.edges.conftest import Run


def put(file: str, *texts: str) -> list[str]:
    with Ledger.open(file) as ledger:
        queue = Queue(ledger)
        return [queue.enqueue("main", Ask((Message("user", text),))).id for text in texts]


def test_queue_lists_what_waits(run: Run, file: str) -> None:
    put(file, "one", "two \x1b[31m")

    answer = run("queue")

    assert answer.code == 0
    assert "followup  waiting" in answer.out
    assert "\x1b" not in answer.out
    assert [e["ask"]["messages"][0]["content"] for e in run("queue", "--json").json["entries"]] == [
        "one",
        "two \x1b[31m",
    ]


def test_queue_cancels_and_retries(run: Run, file: str) -> None:
    first, _ = put(file, "one", "two")

    assert run("queue", "--cancel", first, "--json").json["entries"][0]["status"] == "cancelled"
    assert [e["id"] for e in run("queue", "--json").json["entries"]] != [first]
    assert "cancelled" in run("queue", "--all").out
    assert run("queue", "--cancel", first).code == 5
    assert run("queue", "--retry", first, "--json").json["entries"][0]["status"] == "waiting"


def test_queue_shows_the_prompt_of_answered_entries(run: Run, file: str) -> None:
    put(file, "What is it?")
    assert run("chat", "main", "--message", "More.", "--model", "echo").code == 0

    first, second = run("queue", "--all").out.splitlines()[1:]

    assert first.endswith("What is it?")
    assert second.endswith("More.")


def test_queue_says_what_is_not_there(run: Run, file: str) -> None:
    put(file)

    assert run("queue", "gone").code == 3
    assert run("queue", "--cancel", "gone").code == 3
    assert run("queue").err == "The queue is empty.\n"


def test_audit_names_tools_used_without_permission(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        ledger.record(
            "main", "q", "r", steps=[a_call("Bash"), a_call("Read")],
            permissions_granted={"tools": ["Read"]},
        )  # fmt: skip
        ledger.record("main", "q", "r", steps=[a_call("Old")])

    answer = run("audit", "--permissions")

    assert answer.code == 1
    assert "not granted" in answer.out
    assert "1 call not checked: no readable permissions recorded." in answer.err
    assert run("audit", "--permissions", "--persona", "other").code == 0
    assert run("audit", "--permissions", "--until", "2020-01-01").code == 0
    assert run("audit", "--permissions", "--since", "1h").code == 1
    assert run("audit", "--permissions", "--since", "nonsense").code == 2
    assert run("audit", "--since", "1h").code == 2
    assert run("audit", "--permissions", "--json").json["misuses"][0]["tool_name"] == "Bash"
