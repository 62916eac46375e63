"""Prompt sets: the texts that certification compares the split and the whole on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import msgspec

from dgrctl.documents import digested_toml
from dgrctl.errors import InputError, IntegrityError

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=64)]


class Prompt(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One text. ``language`` is a BCP 47 tag, or "code"."""

    id: Name
    language: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9-]*$", max_length=35)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000_000)]

    @property
    def text_sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class PromptSet(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """``certs/prompts/*.toml``."""

    schema: Annotated[int, msgspec.Meta(ge=1, le=1)]
    name: Name
    prompts: Annotated[list[Prompt], msgspec.Meta(min_length=1, max_length=1000)]


def load_prompt_set(path: Path, *, sha256: str | None = None) -> PromptSet:
    """Reads a prompt set, and checks that it is the one a lock names.

    Args:
        sha256: Digest of the file that the lock holds; None where no lock is involved.

    Raises:
        InputError: malformed, a name other than the file's, or an id twice.
        IntegrityError: it is another file than the lock names.
    """
    prompts, found = digested_toml(path, PromptSet, what="prompt set")
    if sha256 is not None and found != sha256:
        raise IntegrityError(
            f"this prompt set has SHA-256 {found}; the lock names {sha256}",
            where=str(path),
            remedy="restore the file (git checkout), or write a new lock version for a new prompt set",
        )
    if prompts.name != path.stem:
        raise InputError(
            f"the prompt set calls itself {prompts.name!r}", where=f"{path}: name", remedy=f'write name = "{path.stem}"'
        )
    seen: set[str] = set()
    for number, prompt in enumerate(prompts.prompts):
        if prompt.id in seen:
            raise InputError(f"two prompts have the id {prompt.id!r}", where=f"{path}: prompts[{number}].id", remedy="rename one")
        seen.add(prompt.id)
    return prompts


def require_crossing(prompts: PromptSet, token_counts: dict[str, int], ubatch: int) -> None:
    """Refuses a prompt set that would leave one side of the ubatch limit untried under this recipe.

    A prompt that fits into one decode call and one that does not take different paths through worker and graph.

    Args:
        token_counts: Tokens of each prompt by id, as the reference's tokenizer counts them.

    Raises:
        InputError: no prompt is shorter than one ubatch, or none is longer.
    """
    counts = [token_counts[prompt.id] for prompt in prompts.prompts]
    if min(counts) >= ubatch:
        complaint = f"none of its prompts is shorter than one ubatch of {ubatch} tokens; the shortest has {min(counts)}"
    elif max(counts) <= ubatch:
        complaint = f"none of its prompts is longer than one ubatch of {ubatch} tokens; the longest has {max(counts)}"
    else:
        return
    raise InputError(
        complaint, where=f"prompt set {prompts.name}", remedy="use a lock whose prompt set has both under this recipe's ubatch"
    )
