"""Inputs made from the abilities' own schemas, right and wrong: each is answered as its schema
says, or refused in words, and a refusal changes nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema

from agents_ledger import Ledger
from agents_ledger.bus import Ability, AgentBus, InvokeResult
from agents_ledger.bus.abilities import ABILITIES
from agents_ledger.ledger.tasks import Tasks
from tests.builders import chain
from tests.raw import Raw
from tests.tasking import a_talk, calls
from tests.trust import harness
from tests.trust.harness import Options, Outcome

UNSAID = "what was left out is looked up"
AUDIT_EVERY = 100
# What is there, so that an input may reach something.
KNOWN = (
    "main", "other", "t1", "t2", "m1", "m2", "n1", "c1", "s1", "turn-1", "task:t1", "success",
    "null", "in_progress", "persona:main", "smart:question", "question", "a.py", "{}",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e308, 10**30, "", "\0", "\x1a0000", "\u202e", "x" * 3000,
    "' OR 1=1 --",    "%", "_", "\U0001f600", '"', "\\", [], {}, [[]], {"": None},
)  # fmt: skip


class Maker:
    """Makes values of schemas."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def value(self, schema: dict[str, Any]) -> Any:
        """A value of a schema; now and then one that is not."""
        if self.chance.random() < 0.04:
            return self.chance.choice(ODD)
        if "anyOf" in schema:
            return self.value(self.chance.choice(schema["anyOf"]))
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        kinds = schema.get("type", ["string", "integer", "object"])
        kind = self.chance.choice(kinds) if isinstance(kinds, list) else kinds
        made = getattr(self, f"_{kind}")
        return made(schema)

    def _string(self, _: object) -> str:
        if self.chance.random() < 0.8:
            return self.chance.choice(KNOWN)
        letters = "abc \n\0\"'\\{}ü\U0001f600"
        return "".join(self.chance.choice(letters) for _ in range(self.chance.randrange(12)))

    def _integer(self, schema: dict[str, Any]) -> int:
        least: int = schema.get("minimum", -5)
        most: int = min(schema.get("maximum", 1 << 53), 1 << 53)
        small = self.chance.randrange(least, least + 20)
        return self.chance.choice([least, min(small, most), most])

    _number = _integer

    def _boolean(self, _: object) -> bool:
        return self.chance.random() < 0.5

    def _null(self, _: object) -> None:
        return None

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        return [self.value(schema.get("items") or {}) for _ in range(self.chance.randrange(4))]

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        needed = schema.get("required", ())
        made = {
            name: self.value(part)
            for name, part in schema.get("properties", {}).items()
            if self.chance.random() < (0.98 if name in needed else 0.4)
        }
        if self.chance.random() < 0.03:
            made[self.chance.choice(KNOWN)] = self.value({})
        return made


class Fuzzer:
    """A bus over a ledger that holds something."""

    def __init__(self, ledger: Ledger, raw: Raw, seed: int) -> None:
        self.ledger, self.raw = ledger, raw
        self.bus = AgentBus(ledger)
        self.maker = Maker(seed)
        self.outcome = Outcome()
        self.answered = 0
        chain(ledger, "main", 3)
        ledger.record("main", "question", "answer", id="turn-1")
        ledger.fork("turn-1", label="other")
        tasks = a_talk(ledger)
        tasks.save(calls())
        tasks.stream("t1", "s1")

    def run(self, count: int) -> Outcome:
        """So many inputs."""
        for number in range(1, count + 1):
            self._try(self.maker.chance.choice(ABILITIES))
            self.outcome.done += 1
            if number % AUDIT_EVERY == 0 or number == count:
                for finding in self.ledger.audit():
                    self.outcome.found(f"the audit says {finding}")
        self.outcome.notes["answered"] = self.answered
        return self.outcome

    def _try(self, ability: Ability) -> None:
        given = json.dumps(self.maker.value(ability.input_schema))
        before = self.raw.dump() if ability.writes else {}
        result = self._invoke(ability, given)
        if result.type == "success":
            self.answered += 1
            self._check_answer(ability, given, result.result or "")
        elif result.type not in ("error", "invalid-input"):
            self.outcome.found(f"{ability.id} {given[:300]}: {result.type}: {result.message}")
        elif before:
            after = self.raw.dump()
            after["writers"] = before["writers"]
            if after != before:
                self.outcome.found(f"{ability.id} {given[:300]} was refused, and changed something")

    def _invoke(self, ability: Ability, given: str) -> InvokeResult:
        if not ability.is_stream:
            return self.bus.try_invoke(ability.id, given)
        try:
            pieces = list(self.bus.invoke_stream(ability.id)(given))
        except Exception as error:
            told = getattr(error, "code", None) in ("INVALID_INPUT", "EXECUTION_ERROR")
            return InvokeResult("error" if told else "unknown-failure", message=str(error))
        return InvokeResult("success", pieces[0] if pieces else None)

    def _check_answer(self, ability: Ability, given: str, answer: str) -> None:
        if not answer:
            return
        try:
            jsonschema.validate(json.loads(answer), ability.output_schema)
        except jsonschema.ValidationError as error:
            told = f"{error.json_path}: {error.message[:200]}"
            self.outcome.found(f"{ability.id} {given[:300]} is not as its schema says: {told}")


def plant(bug: str) -> None:
    """Plant a bug."""
    if bug == UNSAID:
        plain = Tasks.query

        def query(self: Tasks, **asked: Any) -> Any:
            return plain(self, **{**asked, "completion_status": asked["completion_status"]})

        Tasks.query = query  # type: ignore[method-assign]
    elif bug:
        raise ValueError(bug)


def fuzz(options: Options) -> Outcome:
    """Run the harness."""
    plant(options.plant)
    with harness.workplace() as folder:
        address = str(folder / "ledger.db")
        with Ledger.open(address) as ledger, Raw(address) as raw:
            return Fuzzer(ledger, raw, options.seed).run(options.count)


if __name__ == "__main__":
    harness.main(fuzz)
