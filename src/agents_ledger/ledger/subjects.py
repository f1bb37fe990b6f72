"""What a ledger offers beyond turns and sessions, one object or verb per subject.

The importers, the servers and the session stores of other frameworks are built on these.
They are for synchronous callers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from agents_ledger.ledger.reading import ReadVerbs
from agents_ledger.ledger.reports import transcripts
from agents_ledger.ledger.reports.transcripts import TranscriptPage
from agents_ledger.ledger.sessions import deleted
from agents_ledger.ledger.turns import grafting, threads, unfinished
from agents_ledger.ledger.turns.grafting import GraftedTurn, SessionCheck
from agents_ledger.model.reports.routing import Route
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Turn

if TYPE_CHECKING:
    from agents_ledger.ledger.evidence.evidence import Evidence
    from agents_ledger.ledger.maintenance.access_tokens import Tokens
    from agents_ledger.ledger.maintenance.redaction.redactions import Redactions
    from agents_ledger.ledger.maintenance.retention import Retention
    from agents_ledger.ledger.maintenance.secrets import Secrets
    from agents_ledger.ledger.projection.import_requests import ImportRequests
    from agents_ledger.ledger.projection.reconcile import Projector
    from agents_ledger.ledger.projection.source_records import Sources
    from agents_ledger.ledger.reports.pages import Pages
    from agents_ledger.ledger.tasks import Tasks
    from agents_ledger.store.database import Engine

T = TypeVar("T")


class Subjects(ReadVerbs):
    """Each object is made anew when it is read, so that it sees what other processes wrote."""

    @property
    def address(self) -> str:
        """The path or `postgresql://` address that the ledger was opened with."""
        return self._core.db.address

    @property
    def backend(self) -> Engine:
        """The database engine: `sqlite` or `postgresql`."""
        return self._core.db.engine

    @property
    def tasks(self) -> Tasks:
        """Tasks, their messages and calls."""
        from agents_ledger.ledger.tasks import Tasks

        return Tasks(self._core)

    @property
    def evidence(self) -> Evidence:
        """Checkpoints of the log of evidence."""
        from agents_ledger.ledger.evidence.evidence import Evidence

        return Evidence(self._core)

    @property
    def tokens(self) -> Tokens:
        """Access tokens of the server."""
        from agents_ledger.ledger.maintenance.access_tokens import Tokens

        return Tokens(self._core)

    @property
    def secrets(self) -> Secrets:
        """Secrets in the ledger, and what it does about them."""
        from agents_ledger.ledger.maintenance.secrets import Secrets

        return Secrets(self._core)

    @property
    def redactions(self) -> Redactions:
        """What was removed from this ledger for good, and the verb that removes."""
        from agents_ledger.ledger.maintenance.redaction.redactions import Redactions

        return Redactions(self._core)

    @property
    def retention(self) -> Retention:
        """Runs of the retention policy."""
        from agents_ledger.ledger.maintenance.retention import Retention

        return Retention(self._core)

    def for_people(self) -> Self:
        """This ledger, for showing: secrets in what its verbs read are masked if it is set so."""
        self._core.show()
        return self

    @property
    def pages(self) -> Pages:
        """Reports made for the pages of the Command Center."""
        from agents_ledger.ledger.reports.pages import Pages

        return Pages(self._core)

    @property
    def sources(self) -> Sources:
        """The archive of imported files: their bytes, and how far each was derived."""
        from agents_ledger.ledger.projection.source_records import Sources

        return Sources(self._core)

    @property
    def projector(self) -> Projector:
        """Writes the turns and sessions that an importer derived from source files."""
        from agents_ledger.ledger.projection.reconcile import Projector

        return Projector(self._core)

    @property
    def import_requests(self) -> ImportRequests:
        """Answers given to `sessions.import` requests, and the chunks of unfinished uploads."""
        from agents_ledger.ledger.projection.import_requests import ImportRequests

        return ImportRequests(self._core)

    def index_in_background(self) -> None:
        """Bring the search index up to date in a thread, while others write."""
        self._core.index_in_background()

    def explain_route(self, target: str) -> tuple[str, Route | None]:
        """The turn or session that a target leads to and, for `smart:TEXT`, the route, with its
        confidence and reasons."""
        from agents_ledger.ledger.search import routing

        return self._read(lambda tx: routing.explained(tx, target))

    def check_shown(self, target: str) -> None:
        """NotFound if a session, or a turn of it alone, is marked as deleted."""
        self._read(lambda tx: deleted.check_shown(tx, target))

    def read_transcript(
        self, target: str, read: Callable[[Iterator[TranscriptPage]], T], *, page: int | None
    ) -> T:
        """Call `read` with the messages of a thread in pages, the last page first.

        The first page has `page` turns and each following one twice as many as the one before;
        None: one page has all. An unknown or empty thread has no pages. A session's unfinished turn
        is a page of its own.
        """
        # Not `_read`: an error of the caller's function is no reason for an audit.
        return self._core.db.read(lambda tx: read(transcripts.backwards(tx, target, page=page)))

    def unfinished(self, session: str) -> Turn | None:
        """The turn on a session's head that is being written, or whose writer died."""
        return self._read(lambda tx: unfinished.find(tx, session))

    def forget_unfinished(self, session: str) -> None:
        """Forget a turn whose writer died. It stays as a failed branch."""
        self._write(lambda tx: unfinished.forget(tx, session))

    def turn_of_message(self, message_id: str) -> Turn:
        """The turn of a message."""
        return self._read(lambda tx: threads.of_message(tx, message_id))

    def graft(
        self,
        session: Session,
        *,
        turns: Sequence[GraftedTurn] = (),
        head: str | None,
        check: SessionCheck,
        metadata_json: str | None = None,
    ) -> None:
        """Record turns, each on the parent named with it, and point the session to `head`.

        All of it is one transaction. `check` gets the session as it is, None if there is none, and
        raises to refuse. For stores of other frameworks that rewrite the end of a conversation.
        """
        prepared = [grafting.prepare(session.label, turn) for turn in turns]
        self._write(
            partial(
                grafting.graft,
                session=session,
                turns=prepared,
                head=head,
                check=check,
                metadata_json=metadata_json,
            )
        )
