"""Where the ledger lives, and what a user set once for all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from agents_ledger.model.errors import Refused

VARIABLE = "AGENTS_LEDGER"
POLICY_VARIABLE = "AGENTS_LEDGER_POLICY"
EVIDENCE_VARIABLE = "AGENTS_LEDGER_EVIDENCE"
REDACTION_KEY_VARIABLE = "AGENTS_LEDGER_REDACTION_KEY"


def address(chosen: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The ledger's address: as chosen, else from AGENTS_LEDGER, else in the user's data folder."""
    if chosen is not None and not chosen.strip():
        raise Refused("the ledger's address is empty", "Give a file's path, or leave it out.")
    return chosen or environment.get(VARIABLE) or str(default_file())


def default_file() -> Path:
    """The ledger file of this user."""
    from platformdirs import user_data_path

    return user_data_path("agents-ledger", appauthor=False) / "ledger.db"


def make_default_folder(chosen: str) -> None:
    """Make the folder of this user's ledger, for nobody else to read, if that one was chosen."""
    folder = Path(chosen).parent
    # Looked at first: to know the default path takes 10 ms.
    if not folder.is_dir() and Path(chosen) == default_file():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def settings_file() -> Path:
    """What this user set: TOML, all of it optional."""
    from platformdirs import user_config_path

    return user_config_path("agents-ledger", appauthor=False) / "settings.toml"


def redaction_key_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The key by which removed values are recognised: AGENTS_LEDGER_REDACTION_KEY, else a file of
    this user. It is never in a ledger, and not in its folder."""
    chosen = environment.get(REDACTION_KEY_VARIABLE)
    return Path(chosen) if chosen else settings_file().with_name("redaction.key")


def is_postgres(address: str) -> bool:
    """Whether a ledger's address names a PostgreSQL server, not a file."""
    return address.startswith(("postgresql://", "postgres://"))


def absolute(address: str) -> str:
    """The same ledger, from any folder."""
    return address if is_postgres(address) else os.path.abspath(address)


def evidence_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's keys for checkpoints are: AGENTS_LEDGER_EVIDENCE, else beside the user's
    own ledger. Never in a ledger."""
    if environment.get(EVIDENCE_VARIABLE):
        return Path(environment[EVIDENCE_VARIABLE])
    return default_file().with_name("evidence")


def policy_file(chosen: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The policy of a ledger: AGENTS_LEDGER_POLICY, else beside its file, else this user's."""
    if environment.get(POLICY_VARIABLE):
        return Path(environment[POLICY_VARIABLE])
    if is_postgres(chosen):
        return settings_file().with_name("policy.toml")
    return Path(chosen).with_suffix(".policy.toml")


def _said() -> dict[str, object]:
    file = settings_file()
    if not file.exists():
        return {}
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}", "Correct it, or remove it.") from error


def excluded() -> tuple[str, ...]:
    """Paths and projects that are never imported: `exclude = ["..."]` in the settings."""
    patterns = _said().get("exclude", [])
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise Refused(f"`exclude` in {settings_file()} is not a list of texts")
    named = tuple(os.path.expanduser(pattern) for pattern in patterns)
    for pattern in named:
        if not is_whole(pattern) and not is_pattern(pattern):
            raise Refused(
                f"`exclude` in {settings_file()} names {pattern!r}, which is no whole path",
                "Begin it with / or ~, or make it a pattern, with *.",
            )
    return named


def hooks() -> dict[str, object]:
    """Which hooks of agents are switched off: the table `hooks` of the settings."""
    table = _said().get("hooks", {})
    if not isinstance(table, dict):
        raise Refused(f"`hooks` in {settings_file()} is not a table")
    return table


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern."""
    return re.search(r"[*?[]", path) is not None


def is_windows(path: str) -> bool:
    """Whether a path is whole on Windows, wherever it is read."""
    return re.match(r"[A-Za-z]:(?:[\\/]|$)|\\\\", path) is not None


def is_whole(path: str) -> bool:
    """Whether a path begins at a root."""
    return os.path.isabs(path) or is_windows(path)


def chosen_embedder() -> str | None:
    """The model for searching by meaning: `embedder = "FOLDER"` in the settings."""
    chosen = _said().get("embedder")
    if chosen is not None and not isinstance(chosen, str):
        raise Refused(f"`embedder` in {settings_file()} is not a text")
    return chosen or None
