"""Managers and workers: tools to delegate a task to a session of its own, and to hear of it.

A worker's session and the call that spawned it name each other. Its result always comes back, as a
message from an agent in the line of its manager's session: in the transaction that seals the
worker's turn, or, if its process died, by whichever broker notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agents_ledger.broker.run import report
from agents_ledger.broker.tools import Invocation, OfferedTool
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.ledger.sessions.queue_entries import new_entry
from agents_ledger.model.agents.engine import Tool
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import new_id
from agents_ledger.model.queue import Ask, Claim
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, TurnRole, to_json

if TYPE_CHECKING:
    from agents_ledger.broker.broker import Broker

WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.1
ENDED = ("completed", "failed", "cancelled")
_LABEL = {"type": "string", "description": "The worker's session, as spawn_worker returned it."}


def tools(broker: Broker, claim: Claim, role: TurnRole) -> Mapping[str, OfferedTool]:
    """The tools to delegate, for those who may: managers, and workers, who may have their own."""
    if role == "unified" or broker.policy.workers.depth_max < 1:
        return {}
    desk = _Desk(broker, claim)
    offered = (
        _tool(
            desk.spawn,
            "spawn_worker",
            "Give a task to a new worker. Returns at once; the result comes back as a message.",
            {
                "task": {"type": "string", "description": "All that the worker must know."},
                "toolset": {"type": "string", "description": "Fewer tools than its default."},
            },
            ["task"],
        ),
        _tool(
            desk.send,
            "message_worker",
            "Tell a worker more, or give it another task. The answer comes back as a message.",
            {"session": _LABEL, "text": {"type": "string"}},
            ["session", "text"],
        ),
        _tool(
            desk.status,
            "worker_status",
            "What a worker is doing, and what it and its own workers have used.",
            {"session": _LABEL},
            ["session"],
        ),
        _tool(
            desk.wait,
            "wait_for_worker",
            "Wait until a worker has done its task, and get the result now.",
            {"session": _LABEL, "timeout_seconds": {"type": "number"}},
            ["session"],
        ),
    )
    return {each.tool.name: each for each in offered}


def _tool(
    run: Any, name: str, description: str, properties: Mapping[str, Any], required: list[str]
) -> OfferedTool:
    schema = {"type": "object", "properties": properties, "required": required}
    return OfferedTool(Tool(name, description, schema), run)


class _Desk:
    """What one turn delegates."""

    def __init__(self, broker: Broker, claim: Claim) -> None:
        self._broker = broker
        self._claim = claim

    async def spawn(self, made: Invocation) -> object:
        """A worker's session with its task in line, both or neither."""
        await self._check_depth()
        task = str(made.params["task"])
        worker = Session(
            f"worker:{new_id()}",
            persona_id=self._claim.session.persona_id,
            task_description=task,
            task_status="pending",
        )
        toolset = made.params.get("toolset")
        if toolset is not None:
            self._broker.policy.toolset(str(toolset))
        ask = self._ask(task, {"toolset": toolset} if toolset else {})
        await self._broker.queue.spawn(made.call, worker, self._entry(worker.label, ask))
        self._broker.wake(worker.label)
        return {"session": worker.label, "status": "pending"}

    def _ask(self, text: str, directives: Mapping[str, Any]) -> Ask:
        told = to_json({"manager": {"session": self._claim.session_label}})
        message = Message("user", text, "agent", metadata_json=told)
        return Ask((message,), directives, "worker", reply_to=self._claim.session_label)

    def _entry(self, label: str, ask: Ask) -> Any:
        limits = self._broker.policy.queue
        return new_entry(label, ask, "followup", limits=limits, id="", persona_id=None)

    async def _check_depth(self) -> None:
        """Workers may have workers, as deep as the policy lets them."""
        depth, session = 1, self._claim.session
        depth_max = self._broker.policy.workers.depth_max
        while depth <= depth_max and session.parent_session_label is not None:
            session = await self._broker.ledger.session(session.parent_session_label, exact=True)
            depth += 1
        if depth > depth_max:
            raise Refused(f"workers may not be nested deeper than {depth_max}")

    async def send(self, made: Invocation) -> object:
        """A further message to a worker of this session."""
        worker = await self._worker(made)
        ask = self._ask(str(made.params["text"]), {})
        queue = self._broker.queue
        entry = await queue.enqueue(worker.label, ask, limits=self._broker.policy.queue)
        self._broker.wake(worker.label)
        return {"session": worker.label, "entry": entry.id, "status": entry.status}

    async def status(self, made: Invocation) -> object:
        """What became of a worker so far."""
        worker = await self._worker(made)
        used = await self._broker.queue.rollup(worker.label)
        return {"session": worker.label, "status": worker.task_status, "used": used}

    async def wait(self, made: Invocation) -> object:
        """A worker's result, which then does not come as a message too."""
        seconds = float(made.params.get("timeout_seconds") or WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        worker = await self._worker(made)
        with self._broker.pausing():
            while worker.task_status not in ENDED and loop.time() < deadline:
                await asyncio.sleep(LOOK_SECONDS)
                worker = await self._worker(made)
        if worker.task_status not in ENDED:
            return {"session": worker.label, "status": worker.task_status, "result": None}
        result = await self._broker.queue.take_result(worker.label, made.turn_id)
        return {"session": worker.label, "status": worker.task_status, "result": result}

    async def _worker(self, made: Invocation) -> Session:
        label = str(made.params["session"])
        worker = await self._broker.ledger.session(label, exact=True)
        if worker.parent_session_label != self._claim.session_label:
            raise Refused(f"session {label!r} is no worker of {self._claim.session_label!r}")
        return worker


async def report_lost(queue: AsyncQueue) -> tuple[str, ...]:
    """Tell managers of workers whose process died; the labels of the managers' sessions."""
    told = []
    for label, manager, turn_id, error in await queue.lost_workers():
        entry = report(manager, label, turn_id, "failed", error or "the worker's process died")
        await queue.report_lost(label, entry)
        told.append(manager)
    return tuple(told)
