"""Fill a home's journal with packages. Usage: prepare.py HOME COUNT TYPE [RECORDS.db].

The messages are those that a publisher would append; a home that is there gets more of them. RECORDS.db gets the same
values for the floors.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
import sys
from pathlib import Path

from mailboat.composition.home import Home, create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import Config
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, PackageId, SlingId
from mailboat.model.messages import Action, PackageMessage, TopicRole
from mailboat.wire.messages import encode_message
from workload import codec_for, contents, page_path

home, count, package_type = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
codec = codec_for(package_type)


def record(number: int) -> NewRecord:
    """The message of one package."""
    into = io.BytesIO()
    summary = codec.write(contents(number, has_ancestors=number == 0), into)
    payload = into.getvalue()
    message = PackageMessage(
        pub_sling_id=SlingId("a" * 36),
        package_id=PackageId(f"dstrpck-{number:020d}"),
        action=Action.ADD,
        package_type=package_type,
        pub_agent_name=AgentName("author"),
        package_length_bytes=len(payload),
        payload=payload,
        paths=(page_path(number),),
        deep_paths=(page_path(number),),
        package_digest=hashlib.sha256(payload).digest(),
        tree_digest=summary.tree_digest,
        created_ms=1_767_225_600_000 + number,
    )
    headers, value = encode_message(message)
    return NewRecord(value, headers)


is_new = not (home / "mailboat.yaml").exists()
with initialise(create_home(home, Config())) if is_new else Workspace(Home(home)) as workspace:
    topic = workspace.topic(TopicRole.PACKAGE)
    first = workspace.journal.bounds(topic).next_offset
    for begin in range(first, first + count, 1000):
        records = [record(number) for number in range(begin, min(begin + 1000, first + count))]
        workspace.journal.append(topic, records)
        if len(sys.argv) > 4:
            with sqlite3.connect(sys.argv[4]) as database:
                database.execute("CREATE TABLE IF NOT EXISTS record (offset INTEGER PRIMARY KEY, value BLOB NOT NULL)")
                rows = [(begin + index, one.value) for index, one in enumerate(records)]
                database.executemany("INSERT INTO record VALUES (?, ?)", rows)
