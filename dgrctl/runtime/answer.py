"""The answer to one generation: its text as it comes, and its numbers at the end."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dgr.v1 import common_pb2, worker_pb2

from dgrctl.errors import StageError

_REASONS = {
    common_pb2.FINISH_REASON_MAX_TOKENS: "max_tokens",
    common_pb2.FINISH_REASON_END_OF_GENERATION: "end_of_generation",
}


@dataclass
class Answer:
    """What a generation gave.

    Attributes:
        text: All complete characters. Bytes that no continuation can make a character are shown as U+FFFD.
        unfinished_character: The bytes of a character that the answer ended inside. They are not part of the text.
        token_ids: Generated tokens, in order.
        prompt_token_ids: As the route tokenized the prompt.
        finish_reason: "max_tokens" or "end_of_generation".
        prefill_us: Measured by the head: first decode call handed out until the first token was known.
        decode_us: Measured by the head: first token known until the last one was.
        time_to_first_token_us: Measured here: request sent until the first token arrived; None if none did.
    """

    text: str = ""
    unfinished_character: bytes = b""
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    prefill_us: int = 0
    decode_us: int = 0
    time_to_first_token_us: int | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Decode speed: tokens after the first, over the time they took; None where there is nothing to divide."""
        steps = len(self.token_ids) - 1
        return steps * 1e6 / self.decode_us if steps > 0 and self.decode_us > 0 else None

    def as_dict(self) -> dict[str, object]:
        """The answer as ``--json`` prints it."""
        speed = self.tokens_per_second
        return {
            "text": self.text,
            "unfinished_character": self.unfinished_character.hex() or None,
            "token_ids": self.token_ids,
            "prompt_token_ids": self.prompt_token_ids,
            "finish_reason": self.finish_reason,
            "prompt_tokens": len(self.prompt_token_ids),
            "generated_tokens": len(self.token_ids),
            "prefill_us": self.prefill_us,
            "decode_us": self.decode_us,
            "time_to_first_token_us": self.time_to_first_token_us,
            "tokens_per_second": round(speed, 3) if speed is not None else None,
        }

    def summary(self) -> str:
        """The numbers in one line for people."""
        parts = [f"{len(self.prompt_token_ids)} prompt tokens", f"{len(self.token_ids)} generated ({self.finish_reason})"]
        if self.time_to_first_token_us is not None:
            parts.append(f"first token after {self.time_to_first_token_us / 1000:.0f} ms")
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:.1f} tokens/s")
        if self.unfinished_character:
            parts.append(f"unfinished character at the end left out (bytes {self.unfinished_character.hex(' ')})")
        return ", ".join(parts)


def collect(responses: Iterable[worker_pb2.GenerateResponse], write: Callable[[str], None]) -> Answer:
    """Takes a generation to its end.

    Args:
        write: Is told each piece of text as it comes. A token can end inside a character; a piece never does.

    Raises:
        DgrError: what iterating ``responses`` raises.
        StageError: the responses end without saying why.
    """
    answer = Answer()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    started = time.monotonic_ns()

    def say(text: str) -> None:
        answer.text += text
        if text:
            write(text)

    for response in responses:
        match response.WhichOneof("message"):
            case "accepted":
                answer.prompt_token_ids = list(response.accepted.prompt_token_ids)
            case "token":
                if answer.time_to_first_token_us is None:
                    answer.time_to_first_token_us = (time.monotonic_ns() - started) // 1000
                answer.token_ids.append(response.token.id)
                say(decoder.decode(response.token.piece))
            case "finished":
                answer.unfinished_character = decoder.getstate()[0]
                answer.finish_reason = _REASONS.get(response.finished.reason, "unspecified")
                answer.prefill_us = response.finished.prefill_us
                answer.decode_us = response.finished.decode_us
    if not answer.finish_reason:
        raise StageError("the generation ended without a reason", remedy="read the head's log, then run the command again")
    return answer
