"""A missing extra names itself, and how to install it here; tracebacks show hints."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from agents_ledger import (
    EngineError,
    HeadMoved,
    Ledger,
    LedgerError,
    MissingExtra,
    NotFound,
    Refused,
)
from agents_ledger.model.installation.extras import Installation, install_command, needed

MISSING = {
    "claude": ("claude_agent_sdk", "import agents_ledger.integrations.claude"),
    "engine": ("pydantic_ai", "import agents_ledger.integrations.pydantic_ai"),
    "engine, chosen by name": (
        "pydantic_ai",
        "from agents_ledger.broker.engines.registry import choose; choose('pydantic-ai')",
    ),
    "postgres": ("psycopg", "import agents_ledger as a; a.Ledger.open('postgresql://u@h/d')"),
    "meaning": ("numpy", "from agents_ledger.ledger.search.vectors import numpy; numpy()"),
    "meaning, of a model": ("model2vec", "import agents_ledger as a; a.embedder('potion')"),
    "web": ("litestar", "from agents_ledger.cli.main import main; main(['serve', '--no-browser'])"),
    "web, exported": (
        "markupsafe",
        "import agents_ledger as a; from agents_ledger.exporters.exporting import Export;"
        "l = a.Ledger.open('x.db'); l.record('main', 'q', 'r'); Export(l, 'main', 'html')",
    ),
    "mcp": ("mcp", "from agents_ledger.cli.main import main; main(['mcp'])"),
    "bus": (
        "jsonschema",
        "import agents_ledger as a; from agents_ledger.bus import Ability, AgentBus;"
        "ability = Ability(id='a:b', description='d', input={}, output={}, function=dict);"
        "AgentBus(a.Ledger.open('x.db')).register(ability)",
    ),
    "watch": ("watchfiles", "from agents_ledger.cli.main import main; main(['watch'])"),
}


@pytest.mark.finding("users-10")
@pytest.mark.parametrize("extra", MISSING)
def test_a_missing_extra_names_itself(tmp_path: Path, extra: str) -> None:
    package, code = MISSING[extra]
    env = {"HOME": str(tmp_path), "AGENTS_LEDGER": str(tmp_path / "ledger.db")}
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    Ledger.open(env["AGENTS_LEDGER"]).close()

    # A module that is None cannot be imported.
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None; {code}"],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )

    assert process.returncode != 0
    assert f"requires the package {package}, which is not installed" in process.stderr
    assert f"[{extra.partition(',')[0]}]" in process.stderr.split("Install it with: ")[1]


def test_a_missing_extra_is_an_error_of_ours_and_an_import_error() -> None:
    with (
        pytest.raises(MissingExtra, match="the tests requires the package nothing_at_all") as error,
        needed("web", "the tests"),
    ):
        import nothing_at_all  # type: ignore[import-not-found]  # noqa: F401

    assert isinstance(error.value, Refused)
    assert isinstance(error.value, ImportError)
    assert error.value.name == "nothing_at_all"


@pytest.mark.finding("users-15")
def test_the_hint_fits_the_way_the_program_was_installed(tmp_path: Path) -> None:
    clone, env = tmp_path / "a clone", tmp_path / "env"
    env.mkdir()
    from_index = Installation(env, here=tmp_path)
    from_clone = Installation(env, folder=clone, here=tmp_path)
    in_clone = Installation(clone / ".venv", folder=clone, editable=True, here=clone)

    assert (
        install_command("web", from_index) == "env/bin/python -m pip install 'agents-ledger[web]'"
    )
    assert install_command("web", from_index._replace(active=env, here=clone)) == (
        "pip install 'agents-ledger[web]'"
    )
    assert install_command("web", from_clone) == f"env/bin/python -m pip install '{clone}[web]'"
    assert install_command("web", in_clone) == (
        ".venv/bin/python -m pip install --editable '.[web]'"
    )
    (env / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.0\n")
    assert install_command("web", from_clone) == f"uv pip install --python env '{clone}[web]'"
    assert install_command("web", from_clone._replace(active=env)) == (
        f"uv pip install '{clone}[web]'"
    )
    (env / "uv-receipt.toml").touch()
    assert install_command("web", from_index) == "uv tool install --force 'agents-ledger[web]'"
    (env / "pipx_metadata.json").touch()
    assert install_command("web", from_clone) == f"pipx install --force '{clone}[web]'"
    uvx = Installation(tmp_path / "uv" / "archive-v0" / "x1", folder=clone, here=clone)
    assert install_command("web", uvx) == "uvx --from '.[web]' agents-ledger"


@pytest.mark.finding("users-15")
def test_this_installation_is_recognised() -> None:
    current = Installation.current()

    assert current.prefix == Path(sys.prefix)
    assert current.folder is None or (current.folder / "pyproject.toml").exists()


ERRORS: list[LedgerError] = [
    NotFound("there is no session 'x'"),
    Refused("no", "Do this."),
    HeadMoved("main", "a", "b", "c"),
    EngineError("too many requests", "rate"),
]


@pytest.mark.finding("users-10")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_traceback_shows_the_hint_and_the_message_does_not(error: LedgerError) -> None:
    text = "".join(traceback.format_exception(error))

    assert text.endswith(f"{error}\nHint: {error.hint}\n")
    assert error.hint
    assert error.hint not in str(error)


def test_an_engines_error_names_its_kind_after_its_message() -> None:
    error = EngineError("too many", kind="rate")

    assert (str(error), error.kind, error.passing) == ("too many", "rate", True)
    assert EngineError("gone").kind == "unavailable"
    assert not EngineError("too long", "overflow").passing


def test_an_unknown_kind_of_engine_error_lists_the_kinds() -> None:
    with pytest.raises(Refused, match="kind of an EngineError is 'quota': too many") as refused:
        raise EngineError("too many", kind="quota")  # type: ignore[arg-type]

    assert refused.value.hint == (
        "Use one of overflow, rate, auth, unavailable, bad_request, cancelled."
    )


def test_an_error_without_a_hint_has_no_note() -> None:
    assert "Hint" not in "".join(traceback.format_exception(Refused("no")))


def test_a_pickled_error_has_its_hint_once() -> None:
    pickled = pickle.dumps(NotFound("there is no session 'x'"))
    copy = pickle.loads(pickled)  # noqa: S301 - written above

    assert copy.hint == NotFound.hint
    assert "".join(traceback.format_exception(copy)).count("Hint") == 1
