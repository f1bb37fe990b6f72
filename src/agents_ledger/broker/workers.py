"""Managers and workers: tools that delegate a task to a new session, and follow it.

A worker's session and the call that spawned it refer to each other. Its result always returns as a
message to the manager's session: in the transaction that seals the worker's turn or, if its process
died, from the first broker that notices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agents_ledger.broker.run import report
from agents_ledger.broker.tools import OfferedTool, ToolInvocation
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.ledger.sessions.queue_entries import new_entry
from agents_ledger.model.agents.engine import ModelConfig, Tool
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import new_id
from agents_ledger.model.queue import Ask, Claim
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, to_json

if TYPE_CHECKING:
    from agents_ledger.broker.broker import Broker

WAIT_SECONDS = 300.0
POLL_SECONDS = 0.1
ENDED = ("completed", "failed", "cancelled")
_LABEL = {"type": "string", "description": "The worker's session, as spawn_worker returned it."}


def tools(broker: Broker, claim: Claim) -> Mapping[str, OfferedTool]:
    """The tools to delegate. Workers may have workers themselves."""
    if broker.policy.workers.depth_max == 0:
        return {}
    delegation = _Delegation(broker, claim)
    offered = (
        _tool(
            delegation.spawn,
            "spawn_worker",
            "Delegate a task to a new worker. Returns at once; the result arrives as a message.",
            {
                "task": {"type": "string", "description": "The task, with all context."},
                "toolset": {"type": "string", "description": "A smaller toolset than the default."},
            },
            ["task"],
        ),
        _tool(
            delegation.send,
            "message_worker",
            "Send a message to a worker. The answer arrives as a message.",
            {"session": _LABEL, "text": {"type": "string"}},
            ["session", "text"],
        ),
        _tool(
            delegation.status,
            "worker_status",
            "The status of a worker, and the usage of it and its own workers.",
            {"session": _LABEL},
            ["session"],
        ),
        _tool(
            delegation.wait,
            "wait_for_worker",
            "Wait until a worker has finished, and return its result.",
            {"session": _LABEL, "timeout_seconds": {"type": "number"}},
            ["session"],
        ),
    )
    return {tool.tool.name: tool for tool in offered}


def _tool(
    run: Any, name: str, description: str, properties: Mapping[str, Any], required: list[str]
) -> OfferedTool:
    schema = {"type": "object", "properties": properties, "required": required}
    return OfferedTool(Tool(name, description, schema), run)


class _Delegation:
    def __init__(self, broker: Broker, claim: Claim) -> None:
        self._broker = broker
        self._claim = claim

    async def spawn(self, invocation: ToolInvocation) -> object:
        """Create a worker's session and queue its task, atomically."""
        await self._check_depth()
        task = str(invocation.params["task"])
        worker = Session(
            f"worker:{new_id()}",
            persona_id=self._claim.session.persona_id,
            task_description=task,
            task_status="pending",
        )
        toolset = invocation.params.get("toolset")
        if toolset is not None:
            # Raises for an unknown toolset now, while the model that named it can still correct it.
            self._broker.policy.toolset(str(toolset))
        directives = await self._own_directives(invocation.turn_id)
        if toolset is not None:
            directives["toolset"] = toolset
        ask = self._ask(task, directives)
        await self._broker.queue.spawn(invocation.call, worker, self._entry(worker.label, ask))
        self._broker.wake(worker.label)
        return {"session": worker.label, "status": "pending"}

    async def _own_directives(self, turn_id: str) -> dict[str, Any]:
        """How the manager's turn was told to run: a worker has a thread of its own, and inherits
        nothing through it."""
        settings = await self._broker.ledger.effective_config(turn_id)
        return {
            name: settings[name].value
            for name in ModelConfig.__struct_fields__
            if name in settings and settings[name].by != "default"
        }

    def _ask(self, text: str, directives: Mapping[str, Any]) -> Ask:
        metadata = to_json({"manager": {"session": self._claim.session_label}})
        message = Message("user", text, "agent", metadata_json=metadata)
        return Ask((message,), directives, "worker", reply_to=self._claim.session_label)

    def _entry(self, label: str, ask: Ask) -> Any:
        limits = self._broker.policy.queue
        return new_entry(label, ask, "followup", limits=limits, id="", persona_id=None)

    async def _check_depth(self) -> None:
        depth_max = self._broker.policy.workers.depth_max
        if depth_max is None:
            return
        depth, session = 1, self._claim.session
        while depth <= depth_max and session.parent_session_label is not None:
            session = await self._broker.ledger.session(session.parent_session_label, exact=True)
            depth += 1
        if depth > depth_max:
            raise Refused(f"workers may be nested at most {depth_max} deep")

    async def send(self, invocation: ToolInvocation) -> object:
        worker = await self._worker(invocation)
        ask = self._ask(str(invocation.params["text"]), {})
        queue = self._broker.queue
        entry = await queue.enqueue(worker.label, ask, limits=self._broker.policy.queue)
        self._broker.wake(worker.label)
        return {"session": worker.label, "entry": entry.id, "status": entry.status}

    async def status(self, invocation: ToolInvocation) -> object:
        worker = await self._worker(invocation)
        used = await self._broker.queue.rollup(worker.label)
        return {"session": worker.label, "status": worker.task_status, "used": used}

    async def wait(self, invocation: ToolInvocation) -> object:
        """Return a worker's result; it is then not delivered as a message."""
        seconds = float(invocation.params.get("timeout_seconds") or WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        worker = await self._worker(invocation)
        # A manager that waits holds no slot: with all slots held by managers no worker could run.
        with self._broker.pausing():
            while worker.task_status not in ENDED and loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                worker = await self._worker(invocation)
        if worker.task_status not in ENDED:
            return {"session": worker.label, "status": worker.task_status, "result": None}
        result = await self._broker.queue.take_result(worker.label, invocation.turn_id)
        return {"session": worker.label, "status": worker.task_status, "result": result}

    async def _worker(self, invocation: ToolInvocation) -> Session:
        label = str(invocation.params["session"])
        worker = await self._broker.ledger.session(label, exact=True)
        # The label comes from the model, which must not reach sessions of others.
        if worker.parent_session_label != self._claim.session_label:
            raise Refused(f"session {label!r} is not a worker of {self._claim.session_label!r}")
        return worker


async def report_lost(queue: AsyncQueue) -> tuple[str, ...]:
    """Report workers whose process died to their managers; returns the managers' labels."""
    managers = []
    for label, manager, turn_id, error in await queue.lost_workers():
        entry = report(manager, label, turn_id, "failed", error or "the worker's process died")
        await queue.report_lost(label, entry)
        managers.append(manager)
    return tuple(managers)
