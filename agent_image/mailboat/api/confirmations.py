"""Questions before actions, with their consequences: one text for prompts, help and dialogs of the dashboard.

A question names its objects by placeholders. The consequences name none, so they also stand in the help of a command.
The dashboard asks before every action, since a click is quickly made. The command line asks before it drops packages or
the jobs of a queue, or replaces a target. The help of each command states its consequences.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Final, NamedTuple


class Confirmation(NamedTuple):
    """The texts of one action.

    Attributes:
        title: The question, with `{facts}` to fill in.
        consequences: What follows; facts stand in it only where no command has the action or asks for it.
        button: What the dashboard's button says.
        is_dangerous: It drops or replaces something.
    """

    title: str
    consequences: str
    button: str
    is_dangerous: bool = True

    def question(self, **facts: str) -> str:
        """What the command line asks. Raises: KeyError: a fact is missing."""
        return f"{self.title.format(**facts)} {self.consequences.format(**facts)}"

    def help_of(self, summary: str | None) -> str:
        """The help of the command: its docstring, then the consequences."""
        return f"{summary}\n\n{self.consequences}"


DROP: Final = Confirmation(
    "Drop {packages} of {publisher} from the queue of {subscriber}?",
    "The subscriber will not import dropped packages, and subscribers staged behind it skip them.",
    "Drop",
)
FORGET: Final = Confirmation(
    "Remove {subscriber}?",
    "Publishers stop waiting for it, and retention no longer keeps packages for it. Its target is kept.",
    "Remove",
)
SUSPEND: Final = Confirmation(
    "Suspend imports of {subscriber} {period}?",
    "It finishes its current batch and then imports nothing, also through restarts. Publishers do not wait for it.",
    "Suspend",
    is_dangerous=False,
)
REDRIVE: Final = Confirmation(
    "Retry {packages} at {subscriber}?",
    "They are retried in the order of their offsets. A package whose paths were published again later is refused."
    " A stopped subscriber retries them when it starts.",
    "Redrive",
    is_dangerous=False,
)

_RESTORE_TITLE: Final = "Replace content, position and error queue of {target} by those of {snapshot}?"
_DURING: Final = "Its subscriber imports nothing meanwhile, and open commands are refused."
_BACK: Final = (
    "Later packages are imported again, also dropped ones; the hook `after` is called again,"
    " `jobs.on` adds no job twice."
)
STAGED_WAIT: Final = "Subscribers staged behind it wait for packages that a newer snapshot skips: publish them again."
RESTORE: Final = Confirmation(_RESTORE_TITLE, f"{_DURING} {_BACK} {STAGED_WAIT}", "Restore")
"""The position of the target is not known, as at the command line, or is the snapshot's."""
RESTORE_BACK: Final = Confirmation(
    _RESTORE_TITLE, f"It goes back from offset {{position}} to {{next_offset}}. {_DURING} {_BACK}", "Restore"
)
RESTORE_FORWARD: Final = Confirmation(
    _RESTORE_TITLE, f"It goes forward from offset {{position}} to {{next_offset}}. {_DURING} {STAGED_WAIT}", "Restore"
)

REMOVE_SNAPSHOT: Final = Confirmation("Remove {snapshot}?", "The next sweep removes its blob.", "Remove")
SWEEP: Final = Confirmation(
    "Remove {blobs}?",
    "They are older than the grace period, and neither log nor snapshots refer to them. Unreferenced binaries of"
    " sqlite: targets of this home are removed too.",
    "Remove",
)

SUSPEND_JOBS: Final = Confirmation(
    "Suspend {queue}?", "No further jobs start until it is resumed; running ones go on.", "Suspend", is_dangerous=False
)
CLEAR_JOBS: Final = Confirmation("Drop {jobs} of {queue}?", "Running ones go on.", "Drop")
STOP_JOBS: Final = Confirmation(
    "Stop {jobs}?", "Queued jobs stop at once, running ones when their handler notices, at the next renewal.", "Stop"
)
REMOVE_JOBS: Final = Confirmation(
    "Remove {jobs}?",
    "Queued jobs are dropped, ended ones leave the history. Running jobs are left; stop them first.",
    "Remove",
)
RETRY_JOBS: Final = Confirmation(
    "Retry {jobs}?", "Jobs that ended are added again, with new ids and no attempts.", "Retry", is_dangerous=False
)
ADD_JOB: Final = Confirmation("Add a job?", "Its topic is {topic}.", "Add", is_dangerous=False)

PUBLISH: Final = Confirmation("{action} as {publisher}?", "{contents}", "Publish", is_dangerous=False)
DELETE: Final = Confirmation("{action} as {publisher}?", "{contents}", "Publish")
PUBLISH_CHANGES: Final = Confirmation(
    "Publish what changed as {publisher}?", "{contents}", "Publish", is_dangerous=False
)
PUBLISH_REMOVALS: Final = Confirmation("Publish what changed as {publisher}?", "{contents}", "Publish")

CONFIRMATIONS: Final = MappingProxyType(
    {name: defined for name, defined in list(globals().items()) if isinstance(defined, Confirmation)}
)
"""All of them, by name."""


def confirmations_module() -> bytes:
    """The texts as a script of the dashboard, which is made when it is first requested: nothing is built."""
    texts = {name: texts._asdict() for name, texts in CONFIRMATIONS.items()}
    return f"export const CONFIRMATIONS = {json.dumps(texts, indent=1)};\n".encode()
