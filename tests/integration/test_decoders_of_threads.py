"""Threads that decode the same records for the first time do not end the process, see `mailboat.json_decoder`."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from typing import Any

import pytest
from mailboat.errors import UsageError
from mailboat.jobs.handlers import JobHandlers
from mailboat.json_decoder import decoder_of

ROUNDS = 60
"""Each with types of its own. Without the lock the process ended five times of five."""
THREADS = 8


def record_of(number: int) -> Any:
    inner = dataclasses.make_dataclass(f"Inner{number}", [("text", str)], frozen=True)
    fields = [(f"field_{index}", tuple[inner, ...] | None, None) for index in range(30)]  # type: ignore[valid-type]
    return dataclasses.make_dataclass(f"Record{number}", fields, frozen=True)


def decode_in_threads() -> None:
    sys.setswitchinterval(1e-6)
    for number in range(ROUNDS):
        record, together, answers = record_of(number), threading.Barrier(THREADS), list[Any]()

        def decode(record: Any = record, together: threading.Barrier = together, answers: list[Any] = answers) -> None:
            together.wait()
            answers.append(decoder_of(record).decode(b'{"field_29": [{"text": "a"}]}').field_29[0].text)

        threads = [threading.Thread(target=decode) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == ["a"] * THREADS


def test_threads_make_decoders_of_the_same_types_at_once() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_handler_whose_data_no_job_can_have_is_refused_at_once() -> None:
    def work(data: dict[int, list[str]] | dict[str, int], _context: Any) -> None: ...

    with pytest.raises(UsageError, match="no job can have data of the type"):
        JobHandlers().job("work")(work)


if __name__ == "__main__":
    decode_in_threads()
