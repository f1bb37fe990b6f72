"""Exports: a thread whole and in order, in each form, with nothing hostile left alive."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import nh3
import pytest
from markdown_it import MarkdownIt

from agents_ledger import (
    Ledger,
    Message,
    MessageCodeblock,
    MessageFile,
    NotFound,
    Refused,
    Session,
    ToolCall,
    Turn,
    validate,
)
from agents_ledger.cli.servers.demonstration import Demonstration
from agents_ledger.exporters import markdown as md
from agents_ledger.exporters.exporting import Export, Form
from agents_ledger.model.context.items import PROVIDER_FORMATS
from tests.builders import a_full_turn, chain

FORMS: tuple[Form, ...] = ("markdown", "json", "html")  # messages are not told turn by turn
SECRET = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(str(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture
def demo(ledger: Ledger) -> Ledger:
    Demonstration(ledger).record()
    return ledger


def text(ledger: Ledger, target: str, form: Form, **options: Any) -> str:
    return "".join(Export(ledger, target, form, **options))


# -- all forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_thread_is_exported_in_order_with_its_subagents(demo: Ledger, form: Form) -> None:
    told = text(demo, "demo", form)

    parts = ["Why does parse(", "Does anything rely", "Two: cli.py", "Write the changelog entry."]
    if form == "json":
        parts[2:] = ["Write the changelog entry.", "Two: cli.py"]  # subagents stand at the end
    at = [told.replace("\\", "").rindex(part.replace("\\", "")) for part in parts]
    assert at == sorted(at)
    assert "raises ValueError now" not in told  # another branch's


@pytest.mark.parametrize("form", FORMS)
def test_the_last_turns_can_be_exported(demo: Ledger, form: Form) -> None:
    told = text(demo, "demo", form, last=1, subagents=False)

    assert "Write the changelog entry." in told
    assert "Does anything rely" not in told
    turn = demo.thread("demo").turns[1]
    assert "Does anything rely" not in text(demo, turn.id, form)


@pytest.mark.parametrize("form", FORMS)
def test_subagents_can_be_left_out(demo: Ledger, form: Form) -> None:
    assert "Two: cli.py" not in text(demo, "demo", form, subagents=False)


@pytest.mark.parametrize("form", FORMS)
def test_secrets_are_masked_in_every_field(ledger: Ledger, form: Form) -> None:
    everywhere = Message(
        "assistant",
        SECRET,
        thinking=SECRET,
        context_json=json.dumps(SECRET),
        metadata_json=json.dumps(SECRET),
        codeblocks=(MessageCodeblock(SECRET),),
    )
    call = ToolCall.of("Bash", {"command": SECRET}, {"text": SECRET})
    failed = ToolCall.of("Bash", {"command": "x"}, error=SECRET)
    ledger.record("main", SECRET, SECRET, steps=[everywhere, call, failed])
    ledger.record("other", "q", status="failed", error=SECRET)
    ledger.annotate("main", title=f"about {SECRET}", note=SECRET)

    export = Export(ledger, "main", form)
    told = "".join(export)

    assert SECRET[5:] not in told
    assert "ghp_…[masked]" in told.replace("\\u2026", "…").replace("\\[", "[").replace("\\_", "_")
    kinds = {one.kind for one in export.masked}
    assert kinds == {"GitHub token"}
    assert any(one.where.endswith("call Bash, result") for one in export.masked)
    assert SECRET[5:] in text(ledger, "main", form, mask=False)


@pytest.mark.parametrize("form", FORMS)
def test_a_session_that_is_its_own_subagent_is_exported_once(ledger: Ledger, form: Form) -> None:
    call = ToolCall("Task", spawned_session_label="inner")
    ledger.record("outer", "q", "a", steps=[call])
    ledger.record("inner", "asked", "answered", steps=[ToolCall("Task", "{}")])

    assert "answered" in text(ledger, "outer", form)


@pytest.mark.parametrize("form", FORMS)
def test_a_subagent_without_turns_is_named(ledger: Ledger, form: Form) -> None:
    ledger.record("main", "q", "a", steps=[ToolCall("Task", spawned_session_label="silent-1")])

    assert "silent-1" in text(ledger, "main", form)


def test_what_cannot_be_exported_is_refused(ledger: Ledger) -> None:
    ledger.create_session(Session("empty"))

    with pytest.raises(Refused, match="'empty' is empty"):
        Export(ledger, "empty")
    with pytest.raises(NotFound):
        Export(ledger, "nobody")
    with pytest.raises(Refused, match="last is 0"):
        Export(ledger, "empty", last=0)
    with pytest.raises(Refused, match="unknown export form 'pdf'"):
        Export(ledger, "empty", "pdf")  # type: ignore[arg-type]


def test_a_long_thread_is_read_in_batches_and_exported_whole(ledger: Ledger) -> None:
    chain(ledger, "main", 120)

    turns = json.loads(text(ledger, "main", "json"))["turns"]

    assert [turn["depth"] for turn in turns] == list(range(1, 121))


# -- JSON -------------------------------------------------------------------------------------


def test_json_has_every_field_of_every_turn(ledger: Ledger) -> None:
    ledger.record("main", **a_full_turn())

    told = json.loads(text(ledger, "main", "json", mask=False))

    [turn] = msgspec.convert(told["turns"], list[Turn])
    assert turn == ledger.get_turn("main")
    assert told["session"]["label"] == "main"
    assert told["thread"]["depth"] == 1
    assert told["masked"] == []


def test_json_of_hostile_text_is_ascii_and_round_trips(ledger: Ledger) -> None:
    hostile = "\x00\x1b]52;c;x\x07\u202e\ud800</script>"
    ledger.record("main", hostile, hostile)

    told = text(ledger, "main", "json")

    assert told.isascii()
    assert json.loads(told)["turns"][0]["messages"][0]["content"] == hostile


# -- messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDER_FORMATS)
def test_messages_are_the_context_of_the_model(demo: Ledger, provider: str) -> None:
    told = text(demo, "demo", "messages", provider=provider)

    lines = [json.loads(line) for line in told.splitlines()]
    rendered = demo.context("demo").rendered(provider)
    assert lines == rendered.get("messages", rendered.get("input"))
    assert validate(lines, provider) == ()


def test_a_system_prompt_precedes_the_messages(ledger: Ledger) -> None:
    ledger.record("main", f"Use {SECRET}.", "a", system_prompt=f"Never say {SECRET}.")

    export = Export(ledger, "main", "messages")
    first, *others = [json.loads(line) for line in export]

    assert "Never say ghp_…[masked]." in json.dumps(first, ensure_ascii=False)
    assert [line["role"] for line in others] == ["user", "assistant"]
    assert SECRET not in json.dumps(others)
    assert [one.where for one in export.masked] == ["parameters", "message 1"]
    assert SECRET in text(ledger, "main", "messages", mask=False)
    assert json.loads(text(ledger, "main", "messages", provider="openai").split("\n")[0])[
        "role"
    ] in (
        "system",
        "developer",
    )


def test_invalid_options_for_messages_are_refused(ledger: Ledger) -> None:
    ledger.create_session(Session("empty"))
    ledger.record("main", "q", "a")

    with pytest.raises(Refused, match="unknown message format 'mine'"):
        Export(ledger, "main", "messages", provider="mine")
    with pytest.raises(Refused, match="cannot be limited to the last turns"):
        Export(ledger, "main", "messages", last=1)
    with pytest.raises(Refused, match="is empty"):
        Export(ledger, "empty", "messages")


# -- Markdown ---------------------------------------------------------------------------------


def rendered(text_: str) -> str:
    """As a careless reader's program would show it: with HTML and pictures."""
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(text_))


@pytest.mark.parametrize(
    "hostile",
    [
        SCRIPT,
        f"a\n\n{SCRIPT}",
        f"```\n{SCRIPT}",  # a fence that is never closed
        f"`code` {SCRIPT} `code`",
        f"``` {SCRIPT}\n```\n{SCRIPT}",
        f"> {SCRIPT}\n\n- {SCRIPT}",
        "![x](http://evil.example/pixel.png)",
        "[x](javascript:alert(1))",
        "[x]( JavaScript:alert(1))",
        "[x](<javascript:alert(1)>)",
        "<!-- hidden --> <?php ?> </details>",
        "text\n===\n# heading\n---",
        "\x1b[31mred \u202eturned",
    ],
)
def test_markdown_of_hostile_text_is_inert(ledger: Ledger, hostile: str) -> None:
    call = ToolCall.of(hostile, {"command": hostile, "path": hostile}, {"text": hostile})
    files = (MessageFile("read", hostile),)
    ledger.record(
        "main", Message("user", hostile, files=files), hostile, steps=[call], model=hostile
    )
    ledger.annotate("main", title=hostile, note=hostile)

    told = text(ledger, "main", "markdown")

    page = rendered(told)
    assert not re.search(r"<(script|img|details|\?|!--)", page), page
    assert "javascript:" not in "".join(re.findall(r'href="[^"]*"', page)).lower()
    assert not set("\x1b\u202e") & set(told)
    headings = re.findall(r"<h(\d)>", page)
    assert headings == ["1", "2"], "only ours"


def test_markdown_keeps_its_own_formatting() -> None:
    meant = "A `<b>` and **bold**:\n\n```html\n<b>x</b>\n```\n\n- one\n- <https://example.org>"

    assert md.prose(meant) == meant


def test_markdown_shows_diffs_and_commands(ledger: Ledger) -> None:
    edit = ToolCall.of("Edit", {"path": "a", "old_string": "x = 1", "new_string": "x = 2"})
    shell = ToolCall.of("Bash", {"command": "ls -l"}, {"stdout": "total 0"})
    ledger.record("main", "q", "a", steps=[edit, shell])

    told = text(ledger, "main", "markdown")

    assert "```diff\n@@ -1 +1 @@\n-x = 1\n+x = 2\n```" in told
    assert "```sh\nls -l\n```\n\n```\ntotal 0\n```" in told


def test_markdown_shortens_long_results_unless_full(ledger: Ledger) -> None:
    call = ToolCall.of("Read", {"path": "a"}, {"text": "word " * 2000})
    ledger.record("main", "q", "a", steps=[call])

    assert "6,000 more characters" in text(ledger, "main", "markdown")
    assert "more characters" not in text(ledger, "main", "markdown", full=True)


# -- HTML -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page consists of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "img", "br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


HOSTILE = (
    SCRIPT,
    '"><svg onload=alert(3)>',
    "' onmouseover='alert(4)",
    "{{ 7 * 7 }} {% raw %}",
    "[x](javascript:alert(5)) ![p](http://evil.example/p.png)",
    "</pre></style></article></main><h1>mine</h1>",
    "```html\n<script>alert(6)</script>\n```",
    "&lt;script&gt; \x00\x1b\u202e\ud800",
)


def record_hostile(ledger: Ledger) -> None:
    for number, bad in enumerate(HOSTILE):
        files = (MessageFile("read", bad),)
        blocks = (MessageCodeblock(bad, bad, bad),)
        said = Message("assistant", bad, thinking=bad, files=files, codeblocks=blocks)
        steps: list[Any] = [
            said,
            Message("tool", bad),
            Message("system", bad),
            ToolCall.of(bad, {"command": bad, "description": bad}, {"text": bad}),
            ToolCall.of("Edit", {"path": bad, "old": bad, "new": f"{bad}!"}, bad),
            ToolCall.of("Write", {"file_path": f"{bad}.py", "content": bad}, error=bad),
            ToolCall.of("Todo", {"todos": [{"status": bad, "content": bad}]}, {"a": [bad]}),
            ToolCall.of(
                "Patch", {"patch": f"*** Begin Patch\n+{bad}"}, [{"type": "text", "text": bad}]
            ),
            ToolCall.of("apply_patch", {"changes": {bad: {"type": "update", "unified_diff": bad}}}),
            ToolCall("Odd", bad, bad),
            ToolCall("Shot", "{}", json.dumps({"media_type": "image/png", "data": bad})),
            ToolCall("Task", spawned_session_label=f"agent-{number}"),
        ]
        ledger.record("main", bad, bad, steps=steps, model=bad, workspace_path=bad)
        ledger.record(f"agent-{number}", bad, bad)
        ledger.record("main", bad, status="failed", error=bad)
    ledger.annotate("main", title=HOSTILE[0], note=HOSTILE[1])


def test_html_shows_hostile_text_as_text(ledger: Ledger) -> None:
    record_hostile(ledger)

    page = Page(text(ledger, "main", "html", mask=False))

    assert page.open == []
    assert page.tags.count("style") == 1
    assert not {"script", "svg", "iframe", "link", "object", "form", "base"} & set(page.tags)
    assert page.tags.count("h1") == 1  # the title's; one in prose is a smaller thing
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    for name, value in page.attributes:
        assert name not in ("href", "src") or value.startswith(
            ("#", "http", "mailto:", "data:image")
        )
    assert "<script>alert(1)</script>" in page.words
    assert "{{ 7 * 7 }}" in page.words
    assert not set("\x00\x1b\u202e\ud800") & set(page.words)


def test_html_loads_nothing_and_its_policy_forbids_it(demo: Ledger) -> None:
    page = Page(text(demo, "demo", "html"))

    policy = dict(page.attributes)["content"]
    assert not [value for name, value in page.attributes if name == "src"]
    assert "script" not in page.tags
    assert any("default-src 'none'" in value for _, value in page.attributes), policy


def test_html_shows_diffs_and_commands(demo: Ledger) -> None:
    page = text(demo, "demo", "html")

    assert '<span class="del">-unit or &#34;<b>h</b>&#34;</span>' in page
    assert '<span class="ins">+unit or &#34;<b>s</b>&#34;</span>' in page
    assert '<pre class="shell"><b>$</b> pytest -q tests/test_durations.py</pre>' in page
    assert page.count('<details class="subagent">') == 1
    assert "compacted 2 turns → summary" in page
    assert "✕ Failed here" in page
    assert "<code>parse</code>" in page  # Markdown of the answer


def test_html_folds_injected_messages(ledger: Ledger) -> None:
    rules, pasted = "rule " * 100, "line " * 1000
    query = [Message("system", rules), Message("user", rules, "event"), Message("user", pasted)]
    ledger.record("main", query, "a")

    page = text(ledger, "main", "html")

    assert page.count('<details class="msg system folded">') == 1
    assert page.count('<details class="msg user folded">') == 1
    assert "3,500 more characters" in page
    assert Page(page).words.count("line ") >= 1000 - 1  # one is cut in two
    assert Page(page).words.count("rule ") >= 200


def test_html_shows_images_only_without_masking(ledger: Ledger) -> None:
    picture = {"type": "image", "source": {"media_type": "image/png", "data": "iVBORw0" * 200}}
    ledger.record("main", "q", "a", steps=[ToolCall.of("Shot", {}, [picture])])

    assert 'src="data:image/png;base64,iVBORw0' in text(ledger, "main", "html", mask=False)
    masked = text(ledger, "main", "html")
    assert "<img" not in masked
    assert "characters of data removed" in masked


def test_html_lists_what_was_masked(ledger: Ledger) -> None:
    ledger.record("main", SECRET, "a")

    page = Page(text(ledger, "main", "html"))

    assert "Masked in this copy: 1 GitHub token" in page.words
    assert re.search(r"turn 1 \(\w+\), user message, content", page.words)
    assert "No secrets were found in this copy." in text(
        ledger, ledger.record("b", "q", "a").id, "html"
    )


def test_a_patch_given_file_by_file_is_shown_as_diffs() -> None:
    from agents_ledger.render import bodies

    updated = {"type": "update", "unified_diff": "@@ -1 +1 @@\n-x\n+y", "move_path": None}
    drawn = bodies.parameters(
        json.dumps({"changes": {"a.py": updated, "b.py": {"type": "add", "content": "new"}}})
    )

    assert '<div class="path">a.py</div>' in drawn
    assert '<span class="ins">+y</span>' in drawn
    assert '<span class="ins">+new</span>' in drawn


def test_html_is_escaped_even_without_the_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markdown is escaped before it is cleaned: either alone would do."""
    from agents_ledger.render import bodies

    monkeypatch.setattr(nh3, "clean", lambda made, **_: made)

    assert "<script" not in bodies.markdown(SCRIPT)
    assert "<img" not in bodies.markdown("![x](http://evil.example/p.png)")
