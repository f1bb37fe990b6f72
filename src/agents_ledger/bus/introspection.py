"""The abilities of the bus itself: which modules and abilities are registered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from agents_ledger.bus.ability import Ability, Input, NoInput
from agents_ledger.model.errors import NotFound

if TYPE_CHECKING:
    from agents_ledger.bus.bus import AgentBus


class ModuleInput(Input, rename="camel"):
    module_name: str


class AbilityInput(Input, rename="camel"):
    ability_id: str


class ModuleSummary(Struct, rename="camel"):
    name: str
    ability_count: int


class ModulesOutput(Struct):
    modules: tuple[ModuleSummary, ...]


class AbilitySummary(Struct, rename="camel"):
    id: str
    description: str
    is_stream: bool


class AbilitiesOutput(Struct):
    abilities: tuple[AbilitySummary, ...]


class AbilitySchemas(Struct, rename="camel"):
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class AbilityDetails(Struct, rename="camel"):
    id: str
    module_name: str
    ability_name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    is_stream: bool
    writes: bool
    tags: tuple[str, ...]


def _modules(bus: AgentBus, _: NoInput) -> ModulesOutput:
    counts = Counter(ability.module_name for ability in bus.list())
    return ModulesOutput(tuple(ModuleSummary(name, counts[name]) for name in sorted(counts)))


def _abilities(bus: AgentBus, params: ModuleInput) -> AbilitiesOutput:
    abilities = tuple(
        AbilitySummary(ability.id, ability.description, ability.is_stream)
        for ability in bus.list()
        if ability.module_name == params.module_name
    )
    if not abilities:
        raise NotFound(f"no module {params.module_name!r}", "List the modules with bus:list.")
    return AbilitiesOutput(abilities)


def _schemas(bus: AgentBus, params: AbilityInput) -> AbilitySchemas:
    ability = bus.inspect(params.ability_id)
    return AbilitySchemas(ability.input_schema, ability.output_schema)


def _details(bus: AgentBus, params: AbilityInput) -> AbilityDetails:
    ability = bus.inspect(params.ability_id)
    return AbilityDetails(
        **{name: getattr(ability, name) for name in AbilityDetails.__struct_fields__}
    )


INTROSPECTION = (
    Ability(
        id="bus:list",
        description="List the modules with their number of abilities.",
        input=NoInput,
        output=ModulesOutput,
        function=_modules,
    ),
    Ability(
        id="bus:abilities",
        description="List the abilities of a module.",
        input=ModuleInput,
        output=AbilitiesOutput,
        function=_abilities,
    ),
    Ability(
        id="bus:schema",
        description="Get the JSON Schemas of an ability's input and output.",
        input=AbilityInput,
        output=AbilitySchemas,
        function=_schemas,
    ),
    Ability(
        id="bus:inspect",
        description="Get the full description of an ability.",
        input=AbilityInput,
        output=AbilityDetails,
        function=_details,
    ),
)
