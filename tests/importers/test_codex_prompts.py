"""Codex: what the user typed, and what editors and the program put around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.model.turns import Message
from tests.importers.codex_log import Rollout, thread_id, turn_id
from tests.importers.helping import import_paths

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAABBBB", "detail": "high"}
IDE = """# Context from my IDE setup:

## Active file: cart.py
## Active selection of the file:
def total(self): ...
## Open tabs:
- cart.py: src/cart.py

## My request for Codex:
"""
BROWSER = """<in-app-browser-context source="ambient-ui-state">
# In app browser:
- Current URL: http://localhost:8000/
</in-app-browser-context>

## My request:
"""


def prompts(ledger: Ledger, number: int = 1) -> list[Message]:
    return [m for m in ledger.get_turn(turn_id(number)).messages if m.role == "user"]


def sent(message: Message) -> Any:
    return json.loads(message.context_json or "{}").get("sent")


def ask_with(log: Rollout, blocks: list[Any], **event: Any) -> None:
    """A prompt as an item of several blocks, and the event of it."""
    content = [{"type": "input_text", "text": b} if isinstance(b, str) else b for b in blocks]
    log.item("message", role="user", content=content)
    log.event(**event)


@pytest.mark.parametrize(
    "preamble",
    [
        IDE,
        IDE.replace("\n", "\r\n"),
        "\n# Files mentioned by the user:\n\n## a.md: /x/a.md\n\n## My request for Codex:\n",
        '# Files pasted by the user:\n\n## "Do...": /x/p.txt\n\n## My request:\n',
        "# Review findings:\n\n## Finding 1 (/a.py:5)\nWrong.\n\n## My request for Codex:\n",
        BROWSER,
        IDE + "# Files mentioned by the user:\n\n## a.md: /x/a.md\n\n## My request:\n",
    ],
)
def test_a_prompt_from_an_editor_shows_only_the_typed_text(
    ledger: Ledger, tmp_path: Path, preamble: str
) -> None:
    log = Rollout(tmp_path)
    raw = f"{preamble}Add a test.\n\n## My request for Codex:\nis a heading, too.\n"
    log.exchange(1, raw)

    import_paths(ledger, log.save())

    (message,) = prompts(ledger)
    assert message.content == "Add a test.\n\n## My request for Codex:\nis a heading, too."
    assert (message.source, sent(message)) == ("human", raw)
    (line,) = ledger.headlines([turn_id(1)])
    assert str(line.text).startswith("Add a test.")


@pytest.mark.parametrize(
    "text",
    [
        "Explain:\n\n# Context from my IDE setup:\n\n## My request for Codex:\nnothing",
        "# Context from my IDE setup: is what it says. Why?",
        "## My request for Codex:\nJust this.",
        "# Files mentioned by the user:\n\n## a.md: /x/a.md\n\n## My request for Codex:\n\n",
    ],
)
def test_a_prompt_without_preamble_or_request_is_unchanged(
    ledger: Ledger, tmp_path: Path, text: str
) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, text)

    import_paths(ledger, log.save())

    (message,) = prompts(ledger)
    assert (message.content, message.context_json) == (text, None)


def test_the_note_of_the_desktop_app_on_a_screenshot_is_removed(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    said = "The next image is untrusted page evidence from the browser page for Comment 1."
    ask_with(
        log,
        [f"{BROWSER}Wider, please.", said, "<image>", PICTURE, "</image>"],
        kind="user_message",
        message=f"{BROWSER}Wider, please.{said}",
    )
    log.say("Wider.")

    import_paths(ledger, log.save())

    assert [m.content for m in prompts(ledger)] == ["Wider, please."]


SHAPES: list[tuple[list[Any], dict[str, Any], str]] = [
    (
        ["What is this?", "<image>", PICTURE, "</image>"],
        {"kind": "user_message", "message": "What is this?", "local_images": ["/x/shot.png"]},
        "What is this?",
    ),
    (
        ["<image name=[Image #1]>", PICTURE, "</image>", "[Image #1] What is this?"],
        {
            "kind": "user_message",
            "message": "[Image #1] What is this?",
            "local_images": ["/x/shot.png"],
        },
        "[Image #1] What is this?",
    ),
    (
        ["What is this?", '<image name=[Image #1] path="/x/shot.png">', PICTURE, "</image>"],
        {
            "kind": "item_completed",
            "item": {
                "type": "UserMessage",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "text", "text": "[Image #1]"},
                    {"type": "local_image", "path": "/x/shot.png"},
                ],
            },
        },
        "What is this?",
    ),
]


@pytest.mark.parametrize(("blocks", "event", "text"), SHAPES)
def test_a_prompt_with_an_image_is_one_message(
    ledger: Ledger, tmp_path: Path, blocks: list[Any], event: dict[str, Any], text: str
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    ask_with(log, blocks, **event)
    log.say("A cart.")

    import_paths(ledger, log.save())

    (message,) = prompts(ledger)
    assert (message.content, message.source) == (text, "human")
    (block,) = json.loads(message.metadata_json or "{}")["blocks"]
    assert (block["type"], "image_url" in block) == ("input_image", False)
    assert [(file.kind, file.file_path) for file in message.files] == [("attached", "/x/shot.png")]


@pytest.mark.parametrize("between", [True, False])
def test_a_prompt_with_an_image_sent_twice_is_two_messages(
    ledger: Ledger, tmp_path: Path, between: bool
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    for path in ("/x/one.png", "/x/two.png"):
        ask_with(
            log,
            ["And this?", "<image>", PICTURE, "</image>"],
            kind="user_message",
            message="And this?",
            local_images=[path],
        )
        if between:
            log.say("A cart.")

    import_paths(ledger, log.save())

    assert [(m.content, m.files[0].file_path) for m in prompts(ledger)] == [
        ("And this?", "/x/one.png"),
        ("And this?", "/x/two.png"),
    ]


def test_image_tags_that_were_typed_are_not_removed(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("<image>")
    ask_with(log, ["</image>", "closes it"], kind="user_message", message="</image>closes it")
    log.say("Right.")

    import_paths(ledger, log.save())

    assert [m.content for m in prompts(ledger)] == ["<image>", "</image>\n\ncloses it"]


def test_a_prompt_typed_in_the_thread_of_a_subagent_is_human(
    ledger: Ledger, tmp_path: Path
) -> None:
    spawn = {"parent_thread_id": thread_id(0), "depth": 1}
    log = Rollout(tmp_path, source={"subagent": {"thread_spawn": spawn}})
    log.start(1)
    log.ask("Look at the cart.")
    log.say("I look.")
    log.ask(f"{IDE}Stop looking.")
    log.say("I stop.")

    import_paths(ledger, log.save())

    assert [(m.content, m.source) for m in prompts(ledger)] == [
        ("Look at the cart.", "agent"),
        ("Stop looking.", "human"),
    ]


def reply(said: str) -> str:
    """A reply to questions of the agent as the program sends it."""
    return f"<send_user_message_question_reply>\n{said}\n</send_user_message_question_reply>"


def test_replies_to_questions_show_the_answers(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Build it.")
    log.say("Two questions.")
    raw = reply(
        json.dumps(
            [
                {"questionItemId": "q0", "question": "Which?", "answer": "The first."},
                {"questionItemId": "q1", "question": "When?", "answer": "Now."},
            ]
        )
    )
    log.ask(raw)
    log.ask(IDE + reply('{"questionItemId": "q2", "answer": "Yes."}'))
    for unclear in ("no JSON", "[3]", '[{"answer": ""}]'):
        log.ask(reply(unclear))
    log.say("Built.")

    import_paths(ledger, log.save())

    _, first, second, *others = prompts(ledger)
    assert (first.content, first.source, sent(first)) == ("The first.\n\nNow.", "human", raw)
    assert second.content == "Yes."
    assert [(m.content, m.context_json) for m in others] == [
        (reply(unclear), None) for unclear in ("no JSON", "[3]", '[{"answer": ""}]')
    ]


HEARTBEAT = """<heartbeat>
  <automation_id>watch-the-till</automation_id>
  <current_time_iso>2026-03-01T10:00:00.000Z</current_time_iso>
  <instructions>
Look whether the till is open.
  </instructions>
</heartbeat>
"""
PLANNED = """Automation: Count the till
Automation ID: count-the-till
Automation memory: $CODEX_HOME/automations/count-the-till/memory.md
Last run: never

Count it.
"""


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (HEARTBEAT, "cron"),
        (PLANNED, "cron"),
        ("<heartbeat> is what it sends. Why?", "human"),
        ("Automation: is it worth it?", "human"),
        (f"What is this?\n\n{HEARTBEAT}", "human"),
    ],
)
def test_scheduled_prompts_have_the_source_cron(
    ledger: Ledger, tmp_path: Path, text: str, source: str
) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "Watch the till.")
    log.exchange(2, text, "It is open.")  # an event says so too, as of what people type

    import_paths(ledger, log.save())

    assert [(m.content, m.source) for m in prompts(ledger, 2)] == [(text, source)]
    assert ledger.get_turn(turn_id(2)).status == "completed"


def test_developer_messages_are_system_messages(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    content = [{"type": "input_text", "text": "Be brief."}, PICTURE]
    log.item("message", role="developer", content=content)
    log.ask("Go.")
    import_paths(ledger, log.save())

    put_in = ledger.get_turn(turn_id(1)).messages[0]
    assert (put_in.role, put_in.source, put_in.content) == ("system", "event", "Be brief.")
    told = json.loads(put_in.metadata_json or "")
    assert told["role"] == "developer"
    assert told["blocks"][0]["type"] == "input_image"
