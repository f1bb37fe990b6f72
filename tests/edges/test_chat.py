"""chat, resume and rerun, as a user calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Compaction, Ledger, Session
from tests.builders import chain
from tests.edges.conftest import Run
from tests.importers.claude_log import SESSION, Log


@pytest.fixture
def made(file: str) -> str:
    """A ledger with a conversation, and a policy that chooses the echo engine."""
    with Ledger.open(file) as ledger:
        chain(ledger, "work", 2)
    Path(file).with_suffix(".policy.toml").write_text('[engine]\nmodel = "echo"\n')
    return file


@pytest.fixture
def bare(file: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger with a conversation, without a policy, on a machine without keys."""
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with Ledger.open(file) as ledger:
        chain(ledger, "work", 2)
    return file


def rows(file: str) -> dict[str, int]:
    """How many rows there are of all that an attempt could leave behind."""
    with Ledger.open(file) as ledger:
        return {
            table: ledger.query(f"SELECT count(*) FROM {table}")[1][0][0]
            for table in ("turns", "sessions", "session_history", "queue", "messages")
        }


@pytest.mark.finding("users-3")
@pytest.mark.finding("users-25")
@pytest.mark.finding("users-24")
def test_without_a_model_nothing_is_answered_and_nothing_is_left(run: Run, bare: str) -> None:
    before = rows(bare)
    with Ledger.open(bare) as ledger:
        first = ledger.ancestry("work")[0]

    attempts = [
        run("chat", "work", "--message", "Hello"),
        run("chat", "--message", "Hello"),
        run("chat", "fresh", "--message", "Hello"),
        run("chat", first, "--message", "otherwise"),
        run("chat", "work", input="one\ntwo\n"),
        run("rerun", "work"),
        run("rerun", "work", "--whole"),
    ]

    for answer in attempts:
        assert (answer.code, answer.out) == (5, "")
        assert answer.err.startswith("error: no model is configured\nhint: ")
        assert "--model provider:name" in answer.err
        assert "`model` under [engine]" in answer.err
        assert str(Path(bare).with_suffix(".policy.toml")) in "".join(answer.err.splitlines())
    assert rows(bare) == before
    assert run("chat", "work", "--message", "Hello", "--model", "echo").out == "Hello\n"


@pytest.mark.finding("users-3")
@pytest.mark.finding("users-24")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-opus-5", "ANTHROPIC_API_KEY"),
        ("gpt-5", "provider:name"),
        ("nowhere:gpt-5", "provider:name"),
    ],
)
def test_a_model_that_cannot_run_is_refused_before_anything_is_written(
    run: Run, bare: str, model: str, reason: str
) -> None:
    before = rows(bare)
    with Ledger.open(bare) as ledger:
        first = ledger.ancestry("work")[0]

    for answer in (
        run("chat", "work", "--message", "Hello", "--model", model),
        run("chat", first, "--message", "otherwise", "--model", model),
        run("rerun", "work", "--model", model),
    ):
        assert (answer.code, answer.out) == (7, "")
        assert reason in answer.err
    assert rows(bare) == before


def test_a_chat_that_ends_before_its_first_message_leaves_no_fork(run: Run, made: str) -> None:
    before = rows(made)
    with Ledger.open(made) as ledger:
        first = ledger.ancestry("work")[0]

    assert run("chat", first, input="").code == 0

    assert rows(made) == before


def test_a_model_asked_for_is_never_answered_by_the_echo_of_the_policy(run: Run, made: str) -> None:
    assert run("chat", "work", "--message", "Hello", "--model", "nowhere:gpt-5").code == 7


def test_a_message_is_answered_on_the_main_session(run: Run, made: str) -> None:
    answer = run("chat", "--message", "Hello\x1b[31m")

    assert (answer.code, answer.out) == (0, "Hello␛[31m\n")
    with Ledger.open(made) as ledger:
        assert ledger.thread("main", last=0).depth == 1


def test_every_line_of_the_input_is_a_message(run: Run, made: str) -> None:
    answer = run("chat", "work", input="one\n\ntwo\n")

    assert answer.out == "one\ntwo\n"
    with Ledger.open(made) as ledger:
        assert ledger.thread("work", last=0).depth == 4


def test_a_turn_is_forked_and_a_new_label_creates_a_session(run: Run, made: str) -> None:
    with Ledger.open(made) as ledger:
        first = ledger.ancestry("work")[0]

    forked = run("chat", first, "--message", "otherwise", "--json").json
    new = run("chat", "ideas", "--message", "new", "--engine", "echo", "--model", "big")

    assert forked["session"].startswith("fork-")
    assert new.err == "new session ideas\n"
    with Ledger.open(made) as ledger:
        assert ledger.get_turn(forked["turns"][0]["turn_id"]).parent_turn_id == first
        assert ledger.thread("work", last=0).depth == 2
        assert ledger.thread("ideas").model == "big"


def test_what_fails_says_so_with_its_exit_code(run: Run, made: str, tmp_path: Path) -> None:
    answer = run("chat", "work", "--message", "/fail auth Wrong key.")

    assert (answer.code, answer.out) == (7, "")
    assert answer.err.startswith("error: Wrong key.\nhint: ")
    assert run("chat", "work", "--message", "/fail auth no", "--json").code == 7
    assert run("chat", "--engine", "nonsense", "--message", "x").code == 5
    (tmp_path / "ledger.policy.toml").write_text("[personas.atlas]\n")
    assert run("chat", "work", "--message", "x").code == 5


@pytest.mark.parametrize("message", ["", " \n"])
def test_an_empty_message_is_refused(run: Run, made: str, message: str) -> None:
    answer = run("chat", "fresh", "--message", message)

    assert answer.code == 5
    assert "the message is empty" in answer.err
    assert run("show", "fresh").code == 3


def test_without_a_ledger_nothing_is_made(run: Run, file: str) -> None:
    assert run("chat", "--message", "x").code == 3
    assert not Path(file).exists()


def test_an_imported_conversation_can_be_continued(run: Run, file: str, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", {"type": "text", "text": "Begun."})
    path = log.save()
    assert run("import", str(path)).code == 0
    label = f"claude-code:{SESSION}"

    resumed = run("resume", SESSION)
    answer = run("chat", SESSION, "--message", "Go on.", "--model", "echo")

    assert f"claude --resume {SESSION}" in resumed.out
    assert answer.out == "Go on.\n"
    with Ledger.open(file) as ledger:
        assert [t.query[0].content for t in ledger.thread(label).turns] == ["Begin.", "Go on."]
        assert ledger.audit() == ()
    after = run("resume", label)
    assert after.out == resumed.out == f"cd /home/dev/shop && claude --resume {SESSION}\n"
    assert "continued in the ledger" in after.err
    assert run("resume", label, "--json").json["continued_in_ledger"] is True


def test_resume_falls_back_to_continuing_here(run: Run, made: str) -> None:
    with Ledger.open(made) as ledger:
        ledger.create_session(Session("odd name", origin="cursor", origin_session_id="x"))

    assert run("resume", "work").out == "agents-ledger chat work\n"
    assert run("resume", "odd name").out == "agents-ledger chat 'odd name'\n"
    assert run("resume", "gone").code == 3


@pytest.mark.finding("users-23")
def test_a_suggested_command_quotes_labels(run: Run, made: str) -> None:
    answer = run("rerun", "work", "--label", "another name")

    assert "agents-ledger compare work 'another name'" in answer.err


def test_a_turn_is_rerun_with_another_model(run: Run, made: str) -> None:
    answer = run("rerun", "work", "--engine", "echo", "--model", "big", "--label", "again")

    assert answer.code == 0
    assert "now     big" in answer.out
    assert "agents-ledger compare work again" in answer.err
    with Ledger.open(made) as ledger:
        assert ledger.thread("again").turns[-1].model == "big"
        assert ledger.common_ancestor("work", "again") == ledger.ancestry("work")[0]


def test_a_whole_thread_is_rerun_until_a_turn_fails(run: Run, made: str) -> None:
    whole = run("rerun", "work", "--whole", "--prompt", "/fail rate no", "--json")

    assert whole.code == 1
    assert [turn["error"] for turn in whole.json["turns"]] == [None, "no"]
    with Ledger.open(made) as ledger:
        assert ledger.thread(whole.json["session"], last=0).depth == 1
    assert run("rerun", "gone").code == 3


def test_a_whole_rerun_sends_the_query_of_a_compaction_too(run: Run, made: str) -> None:
    with Ledger.open(made) as ledger:
        for query in ("shorten it", ()):
            last = ledger.get_turn("work").id
            ledger.record("work", query, compaction=Compaction("short", last))

    whole = run("rerun", "work", "--whole", "--json")

    assert (whole.code, len(whole.json["turns"])) == (0, 3)
    assert run("rerun", "work").code != 0


def test_resume_of_a_turn_names_the_fork_to_make(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        turn = ledger.record("main", "q", "r")

    answer = run("resume", turn.id)

    assert answer.code == 5
    assert f"{turn.id} is a turn" in answer.err
    assert f"`agents-ledger fork {turn.id}`" in answer.err
