"""Managers and workers: delegation that survives, narrowed permissions, results that come back."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import Any

import pytest

from agents_ledger import AsyncLedger, CallFinished, Ledger, Queue
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.events import Completed
from agents_ledger.broker.policy import (
    Persona,
    PersonaPermissions,
    Policy,
    ToolRules,
    Workers,
)
from agents_ledger.broker.tools import offer
from agents_ledger.ledger.core import Core
from tests.broker.conftest import WithBroker, answer_of, events_of
from tests.contract.test_recovery import database, kill
from tests.waiting import PATIENCE_S

MANAGER = Policy(personas={"main": Persona(role="manager")})


def spawn(task: str, **more: Any) -> str:
    return f"/call spawn_worker {json.dumps({'task': task, **more})}"


def results(told: list[Any]) -> list[Any]:
    return [json.loads(e.result.text) for e in told if isinstance(e, CallFinished)]


async def settled(broker: Broker) -> None:
    """Until nothing waits and nothing runs."""
    while broker._runs or await broker.queue.entries():
        await asyncio.sleep(0.02)


def test_a_worker_s_result_comes_back_as_a_message_from_an_agent(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> Completed:
        done: Completed = await answer_of(broker, "main", spawn("count the stars") + "\nwait")
        await settled(broker)
        return done

    done = with_broker(act, MANAGER)

    (call,) = ledger.get_turn(done.turn_id).tool_calls
    worker = ledger.session(call.spawned_session_label or "")
    assert worker.parent_session_label == "main"
    assert (worker.parent_turn_id, worker.spawn_tool_call_id) == (done.turn_id, call.id)
    assert (worker.task_description, worker.task_status) == ("count the stars", "completed")
    asked, answered = (turn for turn in ledger.thread("main").turns)
    assert asked.role == "manager"
    message = answered.query[0]
    assert message.source == "agent"
    assert message.content == f"[worker {worker.label}: completed]\ncount the stars"
    worked = ledger.thread(worker.label).turns[0]
    assert worked.role == "worker"
    assert worked.query[0].source == "agent"
    assert json.loads(worked.response.metadata_json or "")["delivery"] == {"session": "main"}  # type: ignore[union-attr]


def test_a_worker_whose_manager_s_session_was_archived_ends_all_the_same(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> None:
        await answer_of(broker, "main", spawn("/wait 300\nlate"))
        await broker.ledger.archive("main")
        await settled(broker)

    with_broker(act, MANAGER)

    (worker,) = (s for s in ledger.sessions() if s.is_subagent)
    assert worker.task_status == "completed"
    assert ledger.thread("main", last=0).depth == 1


def test_a_manager_may_wait_and_then_hears_it_once(with_broker: WithBroker, ledger: Ledger) -> None:
    async def act(broker: Broker) -> Any:
        first = await events_of(broker, "main", spawn("a short task"))
        label = results(first)[0]["session"]
        wait = f"/call wait_for_worker {json.dumps({'session': label})}"
        status = f"/call worker_status {json.dumps({'session': label})}"
        second = await events_of(broker, "main", f"{wait}\n{status}", mode="interrupt")
        await settled(broker)
        return results(second)

    waited, status = with_broker(act, MANAGER)

    assert waited["status"] == "completed"
    assert waited["result"] == "a short task"
    assert status["used"]["turns"] == 1
    assert status["used"]["total_tokens"] > 0
    told = [m.content for t in ledger.thread("main").turns for m in t.query if m.source == "agent"]
    assert len(told) <= 1  # the result may have come before anybody waited


def test_workers_may_have_workers_but_not_deeper_than_the_policy_lets_them(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(personas={"main": Persona(role="manager")}, workers=Workers(depth_max=2))
    deepest = spawn("too deep")
    task = spawn(spawn(deepest))

    async def act(broker: Broker) -> None:
        await answer_of(broker, "main", task)
        await settled(broker)

    with_broker(act, policy)

    workers = [s for s in ledger.sessions(status=None) if s.is_subagent]
    assert len(workers) == 2
    rollup = Queue(ledger).rollup("main")
    assert rollup.sessions == 3
    refused = [
        call.error
        for worker in workers
        for turn in ledger.thread(worker.label).turns
        for call in turn.tool_calls
        if call.status == "failed"
    ]
    assert refused == ["Refused: workers may be nested at most 2 deep"]


def test_a_worker_may_use_nothing_its_manager_could_not(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    ran: list[str] = []

    def deploy() -> str:
        """Only for some."""
        ran.append("deploy")
        return "deployed"

    denying = PersonaPermissions(ToolRules(deny=("deploy",)))
    strict = Policy(personas={"main": Persona(role="manager", permissions=denying)})

    # The worker runs under a policy that would let it, were it not for its manager.
    with_broker(lambda b: answer_of(b, "main", spawn("/wait 500")), strict, tools=[offer(deploy)])
    (worker,) = (s for s in ledger.sessions() if s.is_subagent)
    with_broker(
        lambda b: answer_of(b, worker.label, "/call deploy"), MANAGER, tools=[offer(deploy)]
    )

    assert ran == []
    (call,) = ledger.thread(worker.label).turns[-1].tool_calls
    assert call.status == "rejected"
    assert f"stopped by manager {worker.parent_turn_id}" in (call.error or "")


@pytest.mark.finding("spec-H")
def test_unified_agents_delegate_too_and_a_policy_can_turn_it_off(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> Completed:
        done: Completed = await answer_of(broker, "main", spawn("x"))
        await settled(broker)
        return done

    done = with_broker(act)
    refused = with_broker(act, Policy(workers=Workers(depth_max=0)))

    turn = ledger.get_turn(done.turn_id)
    assert (turn.role, turn.tool_calls[0].status) == ("unified", "completed")
    turn = ledger.get_turn(refused.turn_id)
    assert (turn.tools_available, turn.tool_calls[0].status) == ("[]", "rejected")


@pytest.mark.finding("spec-H")
def test_workers_may_have_workers_without_a_limit(with_broker: WithBroker, ledger: Ledger) -> None:
    deep = "the end"
    for _ in range(6):
        deep = spawn(deep)

    async def act(broker: Broker) -> None:
        await answer_of(broker, "main", deep)
        await settled(broker)

    with_broker(act)

    assert Queue(ledger).rollup("main").sessions == 7


def test_a_worker_runs_as_its_manager_was_told_to(with_broker: WithBroker, ledger: Ledger) -> None:
    async def act(broker: Broker) -> None:
        await answer_of(broker, "main", spawn("x"), directives={"model": "big", "temperature": 0.5})
        await settled(broker)

    with_broker(act)

    (worker,) = (s for s in ledger.sessions() if s.is_subagent)
    settings = ledger.effective_config(worker.label)
    assert (settings["model"].value, settings["temperature"].value) == ("big", 0.5)


def test_a_broker_that_is_closed_claims_nothing_more(address: str) -> None:
    async def act() -> Broker:
        async with (
            AsyncLedger.open(address) as ledger,
            Broker(ledger, engine=EchoEngine()) as broker,
        ):
            await answer_of(broker, "main", spawn("/wait 10000"))
            while not any(run.claim.session.is_subagent for run in broker._runs):
                await asyncio.sleep(0.01)
            await broker.close()  # the worker's end would wake its manager
            assert not broker._queues
        return broker

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))


def test_a_worker_of_another_session_is_refused(with_broker: WithBroker, ledger: Ledger) -> None:
    ledger.record("stranger", "q", "r")

    told = with_broker(
        lambda b: events_of(b, "main", '/call worker_status {"session": "stranger"}'), MANAGER
    )

    (result,) = (e.result for e in told if isinstance(e, CallFinished))
    assert result.is_error
    assert "is not a worker of 'main'" in result.text


DYING = """
import asyncio, sys
from agents_ledger import AsyncLedger
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.policy import Persona, Policy
from agents_ledger.ledger.core import Core
from tests.contract.test_recovery import database

async def main():
    policy = Policy(personas={"main": Persona(role="manager")})
    async with AsyncLedger(lambda: Core(database(sys.argv[1]))) as ledger:
        async with Broker(ledger, policy, EchoEngine()) as broker:
            async for event in broker.send("main", sys.argv[2]):
                pass
            while not any(run.claim.session.is_subagent for run in broker._runs):
                await asyncio.sleep(0.01)
            print("working", flush=True)
            await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_manager_hears_of_a_worker_whose_process_died(
    address: str, with_broker: WithBroker
) -> None:
    task = spawn("/wait 60000")
    process = subprocess.Popen(
        [sys.executable, "-c", DYING, address, task], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        kill(process, address)
    with closing(Ledger(Core(database(address)))) as ledger:
        ledger.recover()

    with_broker(lambda b: b.work(until_idle=True), MANAGER)

    with Ledger.open(address) as ledger:
        (worker,) = (s for s in ledger.sessions() if s.is_subagent)
        assert worker.task_status == "failed"
        last = ledger.thread("main").turns[-1].query[0]
        assert last.source == "agent"
        assert (last.content or "").startswith(f"[worker {worker.label}: failed]")
