"""A PostgreSQL cluster fails over, and 64 writers lose nothing and go on by themselves.

Three nodes with Patroni and synchronous replication, behind HAProxy and PgBouncer. The primary is
killed, its machine stops, it is cut off from the other nodes (while clients reach it, or not), or
it hands over as planned, while 64 threads on four handles write with every verb: three handles by
way of PgBouncer, and one that names the nodes and reads from standbys. Each call that fails is made
again, as its error says.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from random import Random

from agents_ledger import Ledger
from tests.trust import harness
from tests.trust.cluster import Cluster, Node, own_cluster
from tests.trust.harness import Options, Outcome
from tests.trust.server import with_schema
from tests.trust.server_faults import Crew, Writer, judge, judge_recovery

WRITERS = 64
HANDLES = 4
ACKS_BETWEEN = 200
RESUME_S = 120  # the lock of a silent primary ends after 20 s; the rest is a busy machine's

# kill -9 of the server twice: with a Patroni that sees it at once, and with one that dies too.
CRASH, MACHINE, SWITCHOVER = "crash", "machine", "switchover"
# A primary without its cluster goes on for some seconds, and its clients still write to it.
PARTITION, ISOLATION = "partition", "isolation"
EVENTS = (CRASH, PARTITION, SWITCHOVER, MACHINE, ISOLATION)
FAILOVERS_PER_LEDGER = len(EVENTS)
ASYNCHRONOUS = "asynchronous"  # planted: commits do not wait for a standby


class Acknowledgements(threading.Thread):
    """Watches how long the writers were told nothing."""

    def __init__(self, crew: Crew) -> None:
        super().__init__(daemon=True)
        self._crew = crew
        self._ended = threading.Event()
        self.longest_gap_s = 0.0

    def run(self) -> None:
        count, since = self._crew.acks(), time.monotonic()
        while not self._ended.wait(0.05):
            now = time.monotonic()
            if self._crew.acks() != count:
                count, since = self._crew.acks(), now
            self.longest_gap_s = max(self.longest_gap_s, now - since)

    def end(self) -> float:
        self._ended.set()
        self.join()
        return self.longest_gap_s


class Run:
    """Failovers of one cluster, with a new ledger every now and then."""

    def __init__(self, cluster: Cluster, rng: Random, outcome: Outcome) -> None:
        self._cluster = cluster
        self._rng = rng
        self._outcome = outcome

    def fail_over(self, count: int) -> None:
        """Let `count` failovers happen while writers write to a new ledger, and judge it."""
        schema = f"ledger_{self._outcome.done}"
        pooled = with_schema(self._cluster.address, schema)
        direct = with_schema(self._cluster.direct_address, schema)
        crew = Crew()
        Ledger.open(pooled).close()
        self._write_through_failovers((*[pooled] * (HANDLES - 1), direct), crew, count)
        crew.findings += [] if crew.findings else judge_recovery(crew, pooled)
        for finding in crew.findings:
            self._outcome.found(finding)
        for name, times in (*crew.errors.items(), ("facts", crew.acks())):
            self._note(name, times)

    def _write_through_failovers(self, addresses: Sequence[str], crew: Crew, count: int) -> None:
        with contextlib.ExitStack() as stack:
            ledgers = [stack.enter_context(Ledger.open(address)) for address in addresses]
            crew.writers = [
                Writer(crew, ledgers[number % HANDLES], number, self._rng.random())
                for number in range(WRITERS)
            ]
            for writer in crew.writers:
                writer.start()
            for _ in range(count):
                if _wait_for_acks(crew):
                    self._fail_over_once(crew)
            crew.stop.set()
            for writer in crew.writers:
                writer.join(RESUME_S)
            crew.findings += [] if crew.findings else judge(crew, ledgers[0])

    def _fail_over_once(self, crew: Crew) -> None:
        event = EVENTS[self._outcome.done % len(EVENTS)]
        watch = Acknowledgements(crew)
        watch.start()
        strike(self._cluster, event)
        _wait_for_acks(crew)
        self._note(f"longest pause in s, {event}", round(watch.end(), 1))
        self._note(event, 1)
        self._outcome.done += 1
        self._cluster.wait_until_healthy()

    def _note(self, name: str, value: float) -> None:
        harness.add_notes(self._outcome.notes, {name: value})


def run(options: Options) -> Outcome:
    """Let `count` failovers happen."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # it reports every lost connection
    outcome = Outcome()
    with own_cluster(synchronous=options.plant != ASYNCHRONOUS) as cluster:
        failovers = Run(cluster, Random(options.seed), outcome)
        while outcome.done < options.count and not outcome.findings:
            failovers.fail_over(min(FAILOVERS_PER_LEDGER, options.count - outcome.done))
        if outcome.findings:
            harness.keep(options, cluster.folder, f"failovers-{options.seed}")
    return outcome


def _wait_for_acks(crew: Crew) -> bool:
    """Wait until more was acknowledged. False: something is wrong."""
    expected, end = crew.acks() + ACKS_BETWEEN, time.monotonic() + RESUME_S
    while crew.acks() < expected and not crew.findings:
        if time.monotonic() > end:
            crew.findings.append(f"the writers did not continue within {RESUME_S} s")
        time.sleep(0.02)
    return not crew.findings


def strike(cluster: Cluster, event: str) -> None:
    """Let one event happen, and return when another node is the primary."""
    primary, standby = cluster.primary(), cluster.next_primary()
    assert primary
    assert standby
    if event == SWITCHOVER:
        cluster.switch_over(primary, standby)
    elif event == CRASH:
        primary.kill_server()
    elif event == MACHINE:
        primary.kill_machine()
    else:
        cluster.isolate(primary, from_clients=event == ISOLATION)
    _wait_for_another_primary(cluster, primary)
    if event == MACHINE:
        primary.start()
    elif event in (PARTITION, ISOLATION):
        cluster.rejoin(primary)


def _wait_for_another_primary(cluster: Cluster, last: Node) -> None:
    end = time.monotonic() + RESUME_S
    while cluster.primary() in (last, None):
        if time.monotonic() > end:
            raise TimeoutError(f"no other primary after {RESUME_S} s: {cluster.members()}")
        time.sleep(0.1)


if __name__ == "__main__":
    harness.main(run)
