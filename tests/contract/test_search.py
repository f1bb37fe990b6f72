"""Search: every committed turn is found by its words, indexed or still waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_ledger import (
    Compaction,
    Found,
    Ledger,
    Message,
    NotFound,
    Refused,
    Session,
    ToolCall,
)
from agents_ledger.ledger.search import index_queue
from agents_ledger.model.reports.search import Ranking
from tests.builders import a_detailed_message, a_message, chain
from tests.raw import Raw

DAY = 86_400_000
Index = Callable[[], None]


@pytest.fixture(params=["waiting", "indexed"])
def index(request: pytest.FixtureRequest, ledger: Ledger) -> Index:
    """Puts all that waits into the index, or leaves it waiting: nobody may notice."""
    if request.param == "indexed":
        return lambda: ledger._core.index(least=1)
    return lambda: None


def ids(found: Found) -> list[str]:
    return [hit.turn_id for hit in found.hits]


def marked(found: Found) -> list[list[str]]:
    return [[snippet.marked("[", "]") for snippet in hit.snippets] for hit in found.hits]


def test_words_are_found_wherever_they_stand(ledger: Ledger, index: Index) -> None:
    said = Message("assistant", "An answer beside the point", thinking="deep thoughts", source=None)
    call = ToolCall.of("Bash", {"command": "grep -n foo_bar"}, {"out": "no such file", "code": 17})
    failed = ToolCall.of("Read", {"path": "a.py"}, None, error="permission denied")
    turn = ledger.record("main", "A question", said, steps=[call, failed], model="opus")
    ledger.record("main", "something", "else")
    index()

    for text in (
        "question",
        "ANSWER point",
        '"beside the point"',
        "thoughts",
        "foo_bar",
        "foo bar",
        "grep",
        "bash",
        '"no such file"',
        "17",
        "denied",
        "quest*",
        '"beside the po"*',
    ):
        assert ids(ledger.search(text)) == [turn.id], text
    for text in ('"such no file"', "quest", "question -answer", '"beside point"', "opus"):
        assert ids(ledger.search(text)) == [], text


def test_what_was_found_is_marked(ledger: Ledger, index: Index) -> None:
    long = "word " * 200
    ledger.record("main", f"{long}a Café and\ta second café {long}", "tea <b>")
    index()

    [[snippet]] = marked(ledger.search("cafe"))

    assert "a [Café] and a second [café] word" in snippet
    assert snippet.startswith("…")
    assert snippet.endswith("…")
    assert len(snippet) < 200
    hit = ledger.search("tea").hits[0]
    assert (hit.snippets[0].part, hit.snippets[0].text) == ("assistant", "tea <b>")
    assert hit.query is not None
    assert hit.query.startswith("word word")


def test_chinese_japanese_and_korean_are_found_in_the_middle_of_a_run(
    ledger: Ledger, index: Index
) -> None:
    japanese = ledger.record("ja", "東京都の天気はどうですか", "abc晴れdef").id
    chinese = ledger.record("zh", "检查数据库连接", "好").id
    korean = ledger.record("ko", "검색은 어렵다", "ok").id
    index()

    for text, found in (
        ("天気", japanese),
        ("京都", japanese),
        ("都の天気", japanese),
        ("東", japanese),
        ("か", japanese),
        ("晴れ", japanese),
        ("def", japanese),
        ("数据库", chinese),
        ("连接", chinese),
        ("接", chinese),
        ("검색", korean),
    ):
        assert ids(ledger.search(text)) == [found], text
    assert ids(ledger.search("東都")) == []
    assert ids(ledger.search("天気 数据库")) == [chinese, japanese]
    assert marked(ledger.search("天気")) == [["東京都の[天気]はどうですか"]]


def test_all_words_are_wanted_and_any_where_no_turn_has_all(ledger: Ledger, index: Index) -> None:
    both = ledger.record("main", "apple pear", "r").id
    one = ledger.record("main", "apple", "r").id
    index()

    all_words = ledger.search("apple pear")
    some = ledger.search("apple plum -pear")

    assert (ids(all_words), all_words.matched) == ([both], "all")
    assert (ids(some), some.matched) == ([one], "any")
    assert ids(ledger.search("plum")) == []


def test_turns_are_narrowed_by_operators(ledger: Ledger, index: Index) -> None:
    ledger.create_session(Session("imported", origin="codex", persona_id="atlas"))
    here = ledger.record(
        "imported",
        a_detailed_message("word"),
        "word",
        steps=[ToolCall.of("mcp__github__create_issue", {"title": "x"}, {"text": "result"})],
        workspace_path="/home/me/agents-ledger/",
        model="claude-opus-5",
    )
    there = ledger.record(
        "main",
        "word",
        "elsewhere",
        steps=[ToolCall.of("Write", {"file_path": "src/app.py", "content": "c"})],
        workspace_path="C:\\work\\other",
        model="gpt-5",
    )
    bad = ledger.record("main", "word", status="failed", error="timeout")
    short = ledger.record("main", compaction=Compaction("word again", there.id))
    index()

    for text, found in (
        ("word project:agents-ledger", [here]),
        ("word project:/any/agents-ledger", [here]),
        ("word project:agents-ledger project:other", [there, here]),
        ("word -project:agents-ledger", [short, bad, there]),
        ("word origin:codex", [here]),
        ("word origin:native", [short, there]),
        ("word model:opus", [here]),
        ("word -model:opus", [short, bad, there]),
        ("tool:github", [here]),
        ("tool:write", [there]),
        ("file:app.py", [there]),
        ("file:src/app.py", [there]),
        ("file:word.py", [here]),
        ("role:assistant word", [short, here]),
        ("in:tool_result result", [here]),
        ("in:user result", []),
        ("in:user in:tool_result result", [here]),
        ("persona:atlas word", [here]),
        ("-persona:atlas word", [short, bad, there]),
        ("session:imported", [here]),
        ("is:failed", [bad]),
        ("is:compaction", [short]),
        ("-is:failed -is:compaction word", [there, here]),
        ("timeout", [bad]),
        ("nosuch:word", []),
        ("http://word", []),
    ):
        assert ids(ledger.search(text, order="newest")) == [turn.id for turn in found], text


def test_an_operator_that_does_not_exist_is_plain_text(ledger: Ledger, index: Index) -> None:
    turn = ledger.record("main", "see http://example.org, note:this, before", "r")
    index()

    for text in ("http://example.org", "note:this", "before: see"):
        assert ids(ledger.search(text)) == [turn.id], text


def test_dates_narrow_to_when_turns_started(ledger: Ledger, index: Index) -> None:
    old = ledger.record("main", "word", "r", started_at=1_700_000_000_000).id  # 2023-11-14
    new = ledger.record("main", "word", "r").id
    index()

    for text, found in (
        ("word before:yesterday", [old]),
        ("word after:yesterday", [new]),
        ('word after:"3 days ago"', [new]),
        ("word after:last-week", [new]),
        ("word before:2023-11-01", []),
        ("word after:2023-11-01 before:2023-12-01", [old]),
        ("after:2023-11", [new, old]),
        ("word before:2023", []),
    ):
        assert ids(ledger.search(text)) == found, text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the search is empty"),
        ("  -  ", "the search is empty"),
        ("before:someday x", "'someday' is not a date"),
        ("after:2026-13-01", "not a date"),
        ("is:purple", "unknown value is:purple"),
        ("in:nowhere x", "unknown value in:nowhere"),
        ("role:king x", "unknown value role:king"),
        ("-after:today x", "cannot be excluded"),
        ("project:--- x", "no word"),
    ],
)
def test_what_cannot_be_meant_is_refused(ledger: Ledger, text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        ledger.search(text)


def test_a_bad_page_limit_or_order_is_refused(ledger: Ledger) -> None:
    pages: list[Any] = [{"after": at} for at in ("x", "all:nan:inf", "all:inf:inf", "any:1:nan")]
    for wrong in ({"limit": 0}, {"limit": 10_000}, {"order": "best"}, *pages):
        with pytest.raises(Refused):
            ledger.search("word", **wrong)
    with pytest.raises(NotFound, match="nobody"):
        ledger.search("session:nobody")


def test_an_empty_page_is_false(ledger: Ledger, index: Index) -> None:
    ledger.record("main", "Where is the parser?", "In parser.py.")
    index()

    assert len(ledger.search("parser")) == 1
    assert not ledger.search("tokenizer")
    assert not ledger.files("parser.py")


def test_nothing_typed_breaks_the_search(ledger: Ledger, index: Index) -> None:
    ledger.record("main", "it's a \"test\" of c++ (AND) OR NOT * ^ : {x} 'q' \\ 100%", "r")
    index()

    for text in (
        'it"s',
        "c++",
        "(test",
        "AND OR NOT",
        "^x",
        "{x}:",
        "100%",
        "a\\b",
        "☃ x",
    ):
        ledger.search(text)
    assert len(ledger.search("it's").hits) == 1
    assert len(ledger.search('"test" of').hits) == 1


def test_newest_turns_come_first_page_by_page(ledger: Ledger, index: Index) -> None:
    turns = [
        ledger.record("main", f"word {n}", "r", started_at=1_700_000_000_000 + n // 2 * 50).id
        for n in range(7)
    ]
    index()
    turns += chain(ledger, "other", 1)
    turns.append(ledger.record("main", "word", "r").id)

    for order in ("newest", "relevance"):
        pages: list[list[str]] = []
        after = None
        while True:
            found = ledger.search("word", limit=3, order=order, after=after)
            pages.append(ids(found))
            after = found.next
            if after is None:
                break
        assert [len(page) for page in pages] == [3, 3, 2]
        flat = [turn_id for page in pages for turn_id in page]
        assert sorted(flat) == sorted({*turns[:7], turns[8]})
        if order == "newest":
            assert flat[0] == turns[8]
            assert {*flat[1:2]} == {turns[6]}
            assert {*flat[6:8]} == {*turns[:2]}


def test_turns_of_one_moment_come_before_none_of_the_next(ledger: Ledger, index: Index) -> None:
    moments = [
        {ledger.record("main", "word", "r", started_at=1_700_000_000_000 + ms).id for _ in range(4)}
        for ms in range(4)
    ]
    index()

    found = ids(ledger.search("word", order="newest"))

    assert [{*found[at : at + 4]} for at in (12, 8, 4, 0)] == moments


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_no_turn_of_one_moment_is_passed_over_between_pages(
    ledger: Ledger, order: Ranking, limit: int
) -> None:
    turn_ids = []
    for number in range(12):
        call = ToolCall.of("Read", {"file_path": "kestrel.py"})
        at = 1_700_000_000_000
        turn = ledger.record(f"s{number}", "kestrel", "r", steps=[call], started_at=at)
        turn_ids.append(turn.id)
        if number in (3, 6):
            ledger._core.index(least=1)  # the others wait

    def paged(page: Callable[[str | None], tuple[list[str], str | None]]) -> list[str]:
        found, after = page(None)
        while after is not None:
            more, after = page(after)
            found += more
        return found

    def searched(after: str | None) -> tuple[list[str], str | None]:
        found = ledger.search("kestrel", limit=limit, after=after, order=order)
        return ids(found), found.next

    def touched(after: str | None) -> tuple[list[str], str | None]:
        found = ledger.files("kestrel.py", limit=limit, after=after)
        return [touch.turn_id for touch in found.touches], found.next

    assert sorted(paged(searched)) == sorted(turn_ids)
    assert sorted(paged(touched)) == sorted(turn_ids)
    assert len(ledger.search("kestrel after:2023-11-14T22:13:20Z", limit=50).hits) == 12


def test_relevant_turns_come_first(ledger: Ledger, index: Index) -> None:
    asked = ledger.record("main", "parser parser parser", "yes").id
    for number in range(5):
        ledger.record("main", f"other {number}", "nothing")
    noise = ledger.record(
        "main", "q", "r", steps=[ToolCall.of("Bash", {}, "lorem ipsum " * 300 + "parser")]
    ).id
    ledger._core.index(least=1)

    found = ledger.search("parser", order="relevance")

    assert ids(found) == [asked, noise]
    assert found.hits[0].score is not None
    assert found.hits[1].score is not None
    assert found.hits[0].score > found.hits[1].score


def test_a_shared_turn_is_one_hit_of_its_oldest_session(ledger: Ledger, index: Index) -> None:
    first = ledger.record("main", "word", "r").id
    for label in ("one", "two"):
        ledger.fork(first, label=label)
    beside = ledger.record("one", "word", "r").id
    ledger.annotate("main", title="The main one")
    failed = ledger.record("two", "word", status="failed", error="x").id
    index()

    found = ledger.search("word")

    assert [(hit.turn_id, hit.session_label, hit.also_in) for hit in found.hits] == [
        (failed, "main", 0),
        (beside, "one", 0),
        (first, "main", 2),
    ]
    assert found.hits[2].session_title == "The main one"
    assert [(label, len(hits)) for label, hits in found.by_session()] == [("main", 2), ("one", 1)]
    assert ids(ledger.search("is:fork")) == [first]


def test_a_turn_left_behind_is_still_found(ledger: Ledger, index: Index) -> None:
    first = ledger.record("main", "word one", "r").id
    second = ledger.record("main", "word two", "r").id
    ledger.roll_back("main", first)
    index()

    assert [(hit.turn_id, hit.session_label) for hit in ledger.search("word").hits] == [
        (second, "main"),
        (first, "main"),
    ]


def test_a_live_turn_is_found_by_its_query_and_all_of_it_once_sealed(ledger: Ledger) -> None:
    with ledger.turn("main", "a live question") as turn:
        ledger._core.index(least=1)
        assert ids(ledger.search("live question")) == [turn.id]
        with turn.tool_call("Bash", {"command": "ls"}) as call:
            call.complete({"out": "a result"})
        turn.stream("half an ")
        turn.respond("the whole answer")
    for _ in range(2):
        assert ids(ledger.search('"whole answer"')) == [turn.id]
        assert ids(ledger.search("result")) == [turn.id]
        ledger._core.index(least=1)


def test_searching_never_writes(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 3)
    before = raw.dump()

    assert len(ledger.search("question").hits) == 3
    with (
        Ledger.open(ledger._core.db.address, read_only=True)
        if raw.engine == "sqlite"
        else (ledger) as reader
    ):
        assert len(reader.search("question").hits) == 3

    assert raw.dump() == before


def test_what_waits_is_bounded_and_put_in_behind_the_writer(
    limited: Callable[..., Ledger], raw: Raw
) -> None:
    batch, every = 8, 4
    ledger = limited(index_turns=batch, index_writes=every)
    chain(ledger, "main", batch + every - 1)

    assert raw.one("SELECT count(*) FROM search_waiting") <= every
    assert raw.one("SELECT count(*) FROM search_docs") >= batch
    found = ledger.search("question", limit=1000)
    assert len(set(ids(found))) == len(found.hits) == batch + every - 1


def test_closing_puts_in_what_waits(
    ledger: Ledger, open_ledger: Callable[[], Ledger], raw: Raw
) -> None:
    writer = open_ledger()
    chain(writer, "main", index_queue.CLOSE_FROM)
    writer.close()

    assert raw.one("SELECT count(*) FROM search_waiting") == 0


def test_turns_of_one_moment_all_have_their_place_in_the_index(ledger: Ledger) -> None:
    turns = [ledger.record("main", "word", "r", started_at=5).id for _ in range(40)]
    ledger._core.index(least=1)

    assert sorted(ids(ledger.search("word", limit=100))) == sorted(turns)


def test_a_long_result_is_found_by_its_beginning_and_its_end(ledger: Ledger, index: Index) -> None:
    text = "start " + "filler " * 5000 + "ending"
    picture = "A" * 5000
    turn = ledger.record(
        "main", "q", "r", steps=[ToolCall.of("Bash", {"data": picture}, {"out": text})]
    )
    index()

    for word in ("start", "ending", "filler"):
        assert ids(ledger.search(f"in:tool_result {word}")) == [turn.id]
    assert ids(ledger.search(picture)) == []


def test_huge_turns_are_found_whole(ledger: Ledger, index: Index) -> None:
    many = " ".join(f"w{number}" for number in range(40_000))
    turn = ledger.record("main", many, "r")
    index()

    for text in ("w0 w39999", '"w20000 w20001"', "w15999 w16001"):
        assert ids(ledger.search(text)) == [turn.id], text


async def _search(address: str) -> Found:
    from agents_ledger import AsyncLedger

    async with AsyncLedger.open(address) as ledger:
        for number in range(3):
            await ledger.record("main", a_message(f"word {number}"), "r")
        return await ledger.search("word")


def test_asyncio_finds_the_same(address: str) -> None:
    import asyncio

    assert len(asyncio.run(_search(address)).hits) == 3


@pytest.mark.parametrize(
    "text", ["w " * 101, "x" * 10_001, f'"{"a b " * 251}"', f"file:{'x-' * 501}"]
)
def test_searches_that_are_too_long_are_refused(ledger: Ledger, text: str) -> None:
    with pytest.raises(Refused, match="a search has at most"):
        ledger.search(text)


def test_a_long_phrase_is_looked_for_whole(ledger: Ledger, index: Index) -> None:
    said = " ".join(f"word{number}" for number in range(500))
    turn = ledger.record("main", f"before {said} after", "r").id
    index()

    assert ids(ledger.search(f'"{said}"')) == [turn]
    assert ids(ledger.search(f'"word7 {said[6:]}"')) == []


def test_dates_need_no_quotes(ledger: Ledger, index: Index) -> None:
    turn = ledger.record("main", "parser", "r").id
    index()

    for text in ("after:last week parser", "parser after:3 days ago role:user", "after:12h parser"):
        assert ids(ledger.search(text)) == [turn], text
    assert ids(ledger.search("before:3 days ago parser")) == []
    with pytest.raises(Refused, match="'someday' is not a date"):
        ledger.search("after:someday parser")


def test_engines_agree_on_letters_that_stand_for_several(ledger: Ledger, index: Index) -> None:
    ledger.record("main", "the \ufb01le", "r")  # one letter that looks like two
    index()

    assert ids(ledger.search("f*")) == []
