"""The record of a compaction: what it summarised, what it kept, what it cost."""

from __future__ import annotations

from msgspec import Struct


class Compaction(Struct, frozen=True):
    """One compaction. `turn_id` is filled in when it is recorded."""

    summary: str
    summarized_through_turn_id: str
    first_kept_turn_id: str | None = None
    turns_summarized: int | None = None
    compaction_type: str = "summary"
    model: str = "none"  # none: no model summarised
    provider: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    summary_tokens: int | None = None
    summarization_input_tokens: int | None = None
    summarization_output_tokens: int | None = None
    duration_ms: int | None = None
    trigger: str | None = None
    metadata_json: str | None = None
    turn_id: str = ""
