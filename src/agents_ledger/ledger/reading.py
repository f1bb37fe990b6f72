"""The verbs of Ledger that only read.

`make async` writes the verbs of AsyncLedger from this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from agents_ledger.ledger.context import contexts
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.face import Face
from agents_ledger.ledger.sessions import heads, history, names
from agents_ledger.ledger.turns import live, threads, unfinished
from agents_ledger.model.agents import config as configs
from agents_ledger.model.agents.embedding import Embedder
from agents_ledger.model.agents.permissions import PermissionReview
from agents_ledger.model.context.compaction import Compaction, CompactionPlan, Trigger
from agents_ledger.model.errors import Refused
from agents_ledger.model.evidence.verification import Verification
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.ask import Fixes, Recalled, ToolExamples
from agents_ledger.model.reports.comparison import Comparison, WrittenFile
from agents_ledger.model.reports.events import Digest, Event
from agents_ledger.model.reports.routing import Route
from agents_ledger.model.reports.search import (
    Action,
    Found,
    Ranking,
    SearchFacets,
    ThreadMatches,
    Touched,
)
from agents_ledger.model.reports.trees import Headline, Tree
from agents_ledger.model.reports.usage import (
    SessionUsage,
    Spent,
    ToolUsage,
    UsageBy,
    UsageReport,
    UsageSplit,
)
from agents_ledger.model.sessions import (
    Alias,
    EngineCheck,
    Finding,
    Move,
    Session,
    SessionStatus,
    Thread,
)
from agents_ledger.model.text.periods import Zone
from agents_ledger.model.text.tokens import LAST_TURNS, Counter, estimate_tokens
from agents_ledger.model.turns import Query, Turn


class ReadVerbs(Face):
    """The verbs that only read.

    A target is a session's label or alias, or a turn's id or a prefix of it.
    """

    # -- turns ---------------------------------------------------------------------------------

    def get_turn(self, target: str) -> Turn:
        """A turn with its messages and tool calls."""
        return self._read(lambda tx: threads.turn(tx, target))

    def partial_text(self, turn_id: str) -> str:
        """The text that a live turn has streamed so far."""
        return self._read(lambda tx: live.partial_text(tx, threads.resolve_turn(tx, turn_id)))

    def live_turns(self, key: str | None = None) -> tuple[str, ...]:
        """The ids of unsealed turns, of one session or of all.

        A turn whose writer died is listed until recovery fails it.
        """
        return self._read(lambda tx: live.live_turns(tx, key))

    def effective_config(self, target: str) -> configs.EffectiveConfig:
        """The configuration a turn ran with, and which layer set each value.

        A turn recorded without one has that of its parent, inherited.
        """
        return self._read(lambda tx: threads.effective_config(tx, target))

    def system_prompt(self, target: str) -> str | None:
        """The system prompt in force at a turn."""
        return self._read(lambda tx: threads.system_prompt(tx, target))

    # -- threads -------------------------------------------------------------------------------

    def thread(
        self,
        target: str,
        *,
        last: int | None = None,
        from_depth: int = 1,
        to_depth: int | None = None,
        exact: bool = False,
    ) -> Thread:
        """A turn and its ancestors, root first, with the metrics of the whole thread.

        `last` limits the turns to the latest, `from_depth` and `to_depth` to a range; the root has
        depth 1. `exact` finds sessions only by label, including those merged into another.
        """
        return self._read(
            lambda tx: threads.thread(
                tx, target, last=last, from_depth=from_depth, to_depth=to_depth, exact=exact
            )
        )

    def ancestry(self, target: str) -> tuple[str, ...]:
        """The ids of a thread's turns, root first."""
        return self._read(lambda tx: threads.ancestry(tx, target))

    def ancestor_at(self, target: str, depth: int) -> str | None:
        """The id of a thread's turn at a depth; the root has depth 1."""
        return self._read(lambda tx: threads.ancestor_at(tx, target, depth))

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether a turn is on the thread of another."""
        return self._read(lambda tx: threads.is_ancestor(tx, ancestor, descendant))

    def common_ancestor(self, first: str, second: str) -> str | None:
        """The id of the deepest turn that two threads share."""
        return self._read(lambda tx: threads.common_ancestor(tx, first, second))

    def children(self, target: str) -> tuple[Turn, ...]:
        """The children of a turn, without their messages."""
        return self._read(lambda tx: threads.children(tx, target))

    def siblings(self, target: str) -> tuple[Turn, ...]:
        """The other children of a turn's parent, without their messages."""
        return self._read(lambda tx: threads.siblings(tx, target))

    def roots(self) -> tuple[Turn, ...]:
        """The turns that have no parent, without their messages."""
        return self._read(threads.roots)

    def failed_turns(self, session: str) -> tuple[Turn, ...]:
        """The last 20 turns that failed since a session was answered, latest first."""
        return self._read(lambda tx: unfinished.failed(tx, session))

    def subtree(self, target: str, *, limit: int = 10_000) -> tuple[Turn, ...]:
        """A turn and its descendants, the shallowest first, without their messages."""
        return self._read(lambda tx: threads.subtree(tx, target, limit))

    def latest_roots(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        limit: int = 100,
        before: str | None = None,
        subagents: bool = False,
    ) -> tuple[str, ...]:
        """The ids of the turns that have no parent and began between two times, newest first.

        For the next page, pass the last id as `before`.
        """
        from agents_ledger.ledger.reports import trees

        return self._read(
            lambda tx: trees.latest_roots(
                tx, since=since, until=until, limit=limit, before=before, subagents=subagents
            )
        )

    def tree(
        self, target: str, *, fold: bool = True, limit: int = 2000, to_depth: int | None = None
    ) -> Tree:
        """A turn and its descendants down to a depth, as at most `limit` nodes.

        With `fold`, a run of turns without branches is one node.
        """
        from agents_ledger.ledger.reports import trees

        return self._read(
            lambda tx: trees.tree(tx, target, fold=fold, limit=limit, to_depth=to_depth)
        )

    def headlines(self, turn_ids: Iterable[str]) -> tuple[Headline, ...]:
        """One line for each turn: a short id and the start of its first message."""
        from agents_ledger.ledger.reports import trees

        if isinstance(turn_ids, str):
            raise Refused(f"turn_ids is {turn_ids!r:.80}", "It is a list of turn ids.")
        ids = tuple(turn_ids)
        return self._read(lambda tx: trees.headlines(tx, ids))

    def context(
        self,
        target: str,
        query: Query | None = None,
        budget: int | None = None,
        *,
        last: int = LAST_TURNS,
        before: bool = False,
        system_prompt: str | None = None,
        count: Counter = estimate_tokens,
    ) -> Context:
        """What a model is shown when it is asked `query` on a thread, or in a new session.

        `before`: what it was shown when the target's own query was asked. A `budget` in tokens is
        met by cuts in a documented order; the `last` turns and the query are never cut. A
        `system_prompt` replaces that of the thread.
        """
        return self._read(
            lambda tx: contexts.context(
                tx,
                target,
                query=query,
                budget=budget,
                last=last,
                before=before,
                system_prompt=system_prompt,
                count=count,
            )
        )

    def plan_compaction(
        self,
        session: str,
        *,
        strategy: str = "summary",
        budget: int | None = None,
        trigger: Trigger = "manual",
        count: Counter = estimate_tokens,
    ) -> CompactionPlan:
        """What compact() would keep and how many tokens would be left. Nothing changes."""
        from agents_ledger.ledger.context import compaction

        request = compaction.CompactionRequest(session, strategy, budget, trigger, count=count)
        return self._read(lambda tx: compaction.draft(tx, request)).plan

    def compaction_due(
        self,
        target: str,
        *,
        window: int | None = None,
        every: int | None = None,
        count: Counter = estimate_tokens,
    ) -> Trigger | None:
        """Why a thread should be compacted now, or None.

        `context_limit`: its context takes more than 85 % of `window`, the model's context window
        in tokens. `periodic`: there are `every` turns since the last compaction.
        """
        from agents_ledger.ledger.context import compaction

        return self._read(
            lambda tx: compaction.due(tx, target, window=window, every=every, count=count)
        )

    def compactions(self, target: str) -> tuple[Compaction, ...]:
        """The compactions on a thread, latest first."""
        return self._read(lambda tx: threads.compactions(tx, target))

    def compare(self, a: str, b: str, *, limit: int = 50) -> Comparison:
        """Where two threads diverge, and at most `limit` turns of each since then."""
        from agents_ledger.ledger.reports import compare

        return self._read(lambda tx: compare.compare(tx, a, b, limit=limit))

    def compare_files(self, a: str, b: str, *, limit: int = 50) -> tuple[WrittenFile, ...]:
        """The files that either thread wrote since they diverged, each as a diff from A to B."""
        from agents_ledger.ledger.reports import file_diffs

        return self._read(lambda tx: file_diffs.compare_files(tx, a, b, limit=limit))

    # -- sessions ------------------------------------------------------------------------------

    def session(self, key: str, *, exact: bool = False) -> Session:
        """A session by label or alias.

        `exact`: only by label; also one that was merged into another.
        """
        return self._read(lambda tx: heads.get(tx, key, exact=exact))

    def lookup(self, typed: str, *, beginnings: bool = True) -> str:
        """The label or turn id that a user's input refers to.

        That is a label, an alias, a turn or a target of route(); or a session's id in the agent it
        was imported from; or, with `beginnings`, a prefix of that id or of a label.
        """
        from agents_ledger.ledger.search import routing

        return self._read(lambda tx: routing.lookup(tx, typed, beginnings=beginnings))

    def sessions(
        self,
        *,
        status: SessionStatus | None = "active",
        persona_id: str | None = None,
        origin: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        after: Session | None = None,
    ) -> tuple[Session, ...]:
        """Sessions, latest first. For the next page, pass the last session as `after`."""
        return self._read(
            lambda tx: heads.list_(
                tx,
                status=status,
                persona_id=persona_id,
                origin=origin,
                parent=parent,
                limit=limit,
                after=after,
            )
        )

    def head(self, key: str, *, at: int | None = None, exact: bool = False) -> str | None:
        """The turn a session points to, now or at a time in Unix milliseconds.

        What an import brought is dated by its turns: see history().
        """
        return self._read(lambda tx: history.head(tx, key, at=at, exact=exact))

    # -- names and history ---------------------------------------------------------------------

    def aliases(self, key: str | None = None) -> tuple[Alias, ...]:
        """The aliases of a session, or of all."""
        return self._read(lambda tx: names.of(tx, key))

    def history(
        self, key: str, *, limit: int = 100, before: str | int | None = None, exact: bool = False
    ) -> tuple[Move, ...]:
        """The moves of a session's head, latest first.

        An import is one move. The lines of the turns that it brought are `computed` from their
        times. For the next page, pass the last line's `cursor` as `before`.
        """
        return self._read(
            lambda tx: history.lines(tx, key, limit=limit, before=before, exact=exact)
        )

    def sessions_including(self, target: str) -> tuple[str, ...]:
        """The labels of all sessions whose head was ever at a turn or a descendant of it."""
        return self._read(lambda tx: heads.sessions_including(tx, target))

    # -- search --------------------------------------------------------------------------------

    def search(
        self,
        text: str,
        *,
        limit: int = 20,
        order: Ranking = "relevance",
        after: str | None = None,
        embedder: Embedder | None = None,
    ) -> Found:
        """The turns that match a query; docs/reference/search.md has its operators.

        Ordered by time, by relevance, or by meaning, which needs an embedder. For the next page,
        pass `next` of the result as `after`.
        """
        from agents_ledger.ledger.search import turn_search

        return self._read(
            lambda tx: turn_search.search(
                tx,
                text,
                limit=limit,
                order=order,
                after=after,
                now_ms=now_ms(),
                embedder=embedder,
            )
        )

    def search_facets(self, text: str) -> SearchFacets:
        """The agents, projects, kinds of text and periods of the turns that match a query, with
        the number of turns of each. At most the newest 1,000 turns are counted."""
        from agents_ledger.ledger.search import facets

        return self._read(lambda tx: facets.facets(tx, text, now_ms=now_ms()))

    def find_in_thread(self, target: str, text: str, *, limit: int = 500) -> ThreadMatches:
        """The messages and calls of a thread that have these words one after the other, from the
        root to the head. The last word may be the beginning of a longer one."""
        from agents_ledger.ledger.search import thread_search

        return self._read(lambda tx: thread_search.find(tx, target, text, limit=limit))

    def fix(self, error: str, *, limit: int = 3, after: str | None = None) -> Fixes:
        """What ended an error like this one before: the calls between it and the next success.

        For the next page, pass `next` of the result as `after`.
        """
        from agents_ledger.ledger.ask import fixes

        return self._read(lambda tx: fixes.fix(tx, error, limit=limit, after=after))

    def how(self, name: str, *, limit: int = 5, after: str | None = None) -> ToolExamples:
        """How a tool, or a command by its first words, was used with success.

        The newest turns that called it are read. For the next page, pass `next` of the result as
        `after`.
        """
        from agents_ledger.ledger.ask import examples

        return self._read(lambda tx: examples.how(tx, name, limit=limit, after=after))

    def recall(self, question: str, *, budget: int = 2000, after: str | None = None) -> Recalled:
        """The passages that answer a question best, with their context, in at most `budget` tokens.

        The question may have the operators of search(). For the next page, pass `next` of the
        result as `after`.
        """
        from agents_ledger.ledger.ask import passages

        return self._read(
            lambda tx: passages.recall(tx, question, budget=budget, after=after, now_ms=now_ms())
        )

    def files(
        self,
        path: str,
        *,
        action: Action | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Touched:
        """The turns that read or wrote a file, newest first.

        `path` may be the last components of a path. For the next page, pass `next` of the result
        as `after`.
        """
        from agents_ledger.ledger.search import file_search

        return self._read(
            lambda tx: file_search.files(
                tx, path, action=action, since=since, until=until, limit=limit, after=after
            )
        )

    def route(
        self,
        target: str | None = None,
        *,
        persona_id: str = "main",
        personas: Mapping[str, str] | None = None,
        budget: int | None = None,
        embedder: Embedder | None = None,
    ) -> Route:
        """The turn a target leads to: a session, a turn, a key, `persona:ID`, or `smart:TEXT`.

        Without a target, the main session of the persona. `personas` maps the ids of personas to
        the labels of their main sessions, where the two differ.
        """
        from agents_ledger.ledger.search import routing

        parsed = routing.parse(f"persona:{persona_id}" if target is None else target)
        return self._read(
            lambda tx: routing.route(
                tx, parsed, personas=personas or {}, budget=budget, embedder=embedder
            )
        )

    def events(self, target: str, *, last: int = 20) -> tuple[Event, ...]:
        """The messages of a thread's last turns without tool calls, oldest first."""
        from agents_ledger.ledger.reports import events

        return self._read(lambda tx: events.of_thread(tx, target, last=last))

    def digest(self, *, since: int, until: int) -> Digest:
        """What was discussed between two times in Unix milliseconds, session by session."""
        from agents_ledger.ledger.reports import events

        return self._read(lambda tx: events.digest(tx, since=since, until=until))

    # -- reports and checks --------------------------------------------------------------------

    def usage(
        self,
        by: UsageBy = "day",
        *,
        since: int | None = None,
        until: int | None = None,
        project: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        split: UsageSplit | None = None,
        zone: Zone | None = None,
        limit: int | None = None,
    ) -> UsageReport:
        """Turns, tokens and costs by day, week, month, five-hour block, model, agent, project or
        session. `project` and `model` are names, or words of them as in a search; `(none)`: turns
        that record none.

        With `split`, each line has parts by model, project or agent. `zone` is the time zone in
        which days begin; the default is UTC.
        """
        from agents_ledger.ledger.reports import usage

        turns = usage.TurnFilter(since, until, project, model, agent)
        return self._read(
            lambda tx: usage.usage(tx, by, turns, split=split, zone=zone, limit=limit)
        )

    def session_usage(self, labels: Iterable[str]) -> dict[str, SessionUsage]:
        """Tokens and cost of sessions' threads and of their subagents, in one statement.

        Sessions that are unknown or have no turns are left out.
        """
        from agents_ledger.ledger.reports import usage

        return self._read(lambda tx: usage.of_sessions(tx, labels))

    def turn_usage(self, turn_ids: Iterable[str]) -> dict[str, Spent]:
        """Tokens and cost of turns, in one statement; unknown ids are left out."""
        from agents_ledger.ledger.reports import usage

        return self._read(lambda tx: usage.of_turns(tx, turn_ids))

    def tools(
        self, *, since: int | None = None, until: int | None = None, limit: int | None = None
    ) -> tuple[ToolUsage, ...]:
        """Calls, failures and durations of every tool, most used first."""
        from agents_ledger.ledger.reports import usage

        return self._read(lambda tx: usage.tools(tx, since=since, until=until, limit=limit))

    def audit(self, *, quick: bool = False) -> tuple[Finding, ...]:
        """Every broken rule; empty if the ledger is sound.

        The database engine's own check is included: the full one, unless `quick`.
        """
        from agents_ledger.ledger.maintenance import audit

        return self._read(partial(audit.audit, engine=self._core.db.engine, quick=quick))

    def verify(self, checkpoint: str | None = None, *, keys: Sequence[str] = ()) -> Verification:
        """Compare everything that evidence covers with what was recorded: turns, moves of sessions,
        source records, and the log itself.

        `checkpoint` is a file of checkpoints that was kept outside of the ledger; `keys` are those
        of its signers, if they are not on this machine.
        """
        from agents_ledger.ledger.evidence import evidence

        return self._call(evidence.verify, checkpoint, keys=keys)

    def prove(self, target: str) -> dict[str, Any]:
        """A proof that a turn was recorded as it is, which can be verified without the ledger. Of
        an imported turn, that of its source records."""
        from agents_ledger.ledger.evidence import proofs

        return self._call(proofs.prove, target)

    def engine_check(self, *, quick: bool = False) -> EngineCheck:
        """Which check of the database engine audit() runs, and whether it reads everything."""
        from agents_ledger.store.checks import integrity

        return self._read(partial(integrity.describe, mode="quick" if quick else "full"))

    def review_permissions(
        self,
        *,
        persona_id: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> PermissionReview:
        """Which tools were called, by persona, and which calls lacked permission."""
        from agents_ledger.ledger.reports import permissions

        return self._read(
            lambda tx: permissions.review(tx, persona_id=persona_id, since=since, until=until)
        )

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of an SQL statement, which may only read."""
        return self._call(Core.query, sql)
