"""The policy: what each persona may do, read from one file, narrowed and never widened."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Layer, Refused
from agents_ledger.broker import policy
from agents_ledger.broker.policy import Policy
from agents_ledger.model.installation import settings

TOOLS: dict[str, tuple[str, ...]] = {"Read": (), "Bash": (), "Push": ("github",)}
HOUR_MS = 3_600_000
NOON = 1_798_718_400_000  # 2026-12-31T12:00:00Z


def written(tmp_path: Path, text: str) -> Policy:
    file = tmp_path / "ledger.policy.toml"
    file.write_text(text, encoding="utf-8")
    return policy.read(file)


def test_without_a_file_every_tool_is_granted(tmp_path: Path) -> None:
    granted = policy.read(tmp_path / "gone.toml").narrow("anybody", TOOLS)

    assert granted.tools == ("Read", "Bash", "Push")


def test_deny_wins_and_a_credential_must_pass_too(tmp_path: Path) -> None:
    said = written(
        tmp_path,
        '[personas.main.permissions]\ntools = {allow = ["*"], deny = ["B*"]}\n'
        '[personas.other.permissions]\ncredentials = ["git*"]\n',
    )

    assert said.narrow("main", TOOLS).tools == ("Read",)
    assert said.narrow("other", TOOLS).tools == ("Read", "Bash", "Push")


def test_a_toolset_and_a_manager_only_take_away(tmp_path: Path) -> None:
    said = written(
        tmp_path,
        '[toolsets]\nsmall = ["Read", "Bash", "Fly"]\n'
        '[personas.main.permissions]\ntools = {allow = ["Read", "Bash"]}\n',
    )
    manager = said.narrow("main", TOOLS, toolset="small")
    worker = said.narrow("main", TOOLS, inherited=[Layer("manager", deny=("Read",))])

    assert manager.tools == ("Read", "Bash")
    assert worker.tools == ("Bash",)
    assert worker.stopped_by("Read") == "manager"


def test_a_grant_adds_for_a_time_and_overrides_no_deny(tmp_path: Path) -> None:
    said = written(
        tmp_path,
        '[personas.main.permissions]\ntools = {allow = ["Read"], deny = ["Bash"]}\n'
        '[[grants]]\npersona = "main"\ntools = ["Push", "Bash"]\ncredentials = ["github"]\n'
        "expires_at = 2026-12-31T12:00:00Z\n",
    )

    before, after = (said.narrow("main", TOOLS, now=NOON + ms) for ms in (-1, 0))

    assert before.tools == ("Read", "Push")
    assert before.credentials == ("github",)
    assert [grant.expires_at for grant in before.grants] == [NOON]
    assert after.tools == ("Read",)
    assert after.grants == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[personas.main]\ncolour = 1\n", "colour"),
        ('[engine]\ntimeout_seconds = "long"\n', "timeout_seconds"),
        ("[personas.main\n", "line 1"),
        ('[personas.main]\ntoolset = "gone"\n', "toolset 'gone'"),
        ('[workers]\ntoolset = "gone"\n', "toolset 'gone'"),
        ('[[grants]]\npersona = "gone"\n', "persona 'gone'"),
        (
            '[personas.a]\n[[grants]]\npersona = "a"\nexpires_at = 2026-12-31T12:00:00\n',
            "no time zone",
        ),
        ('[personas.a.identity]\nsoul_file = "gone.md"\n', "soul_file of persona 'a'"),
        ('[queue]\nmode = "loud"\n', "loud"),
    ],
)
def test_a_mistake_is_reported_with_its_location(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        written(tmp_path, text)


def test_a_persona_that_is_not_there_is_refused_if_there_are_any(tmp_path: Path) -> None:
    said = written(tmp_path, "[personas.main]\n")

    with pytest.raises(Refused, match="no persona 'ghost'") as refused:
        said.narrow("ghost", TOOLS)
    with pytest.raises(Refused, match="no toolset 'gone'"):
        said.narrow("main", TOOLS, toolset="gone")

    assert "main" in refused.value.hint


def test_a_soul_may_be_a_file_and_a_main_session_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("Be kind.", encoding="utf-8")

    said = written(
        tmp_path,
        '[personas.main.identity]\nsoul_file = "SOUL.md"\n[personas.b]\nsession = "office"\n',
    )

    assert said.persona("main").identity.soul == "Be kind."
    assert said.main_sessions() == {"main": "main", "b": "office"}


def test_the_model_is_the_persona_s_else_the_engine_s(tmp_path: Path) -> None:
    said = written(
        tmp_path,
        '[engine]\nmodel = "big"\n[personas.a.model]\nthinking = "high"\n'
        '[personas.b.model]\nmodel = "small"\n',
    )

    assert said.model_defaults("a").model == "big"
    assert said.model_defaults("a").thinking == "high"
    assert said.model_defaults("b").model == "small"


def test_the_policy_file_is_next_to_the_ledger(tmp_path: Path) -> None:
    assert settings.policy_file("/a/ledger.db", {}) == Path("/a/ledger.policy.toml")
    assert settings.policy_file("postgresql://h/d", {}).name == "policy.toml"
    given = {"AGENTS_LEDGER_POLICY": "/b/p.toml"}
    assert settings.policy_file("/a/ledger.db", given) == Path("/b/p.toml")
