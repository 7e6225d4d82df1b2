"""Spark's configuration: that of the caller first, then that of its files, ours last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long("spark"), pytest.mark.timeout(900)]  # Java starts, on what cores there are

ASK = """
import json, sys
from mailboat.bulk.spark.spark_session import SessionSettings, open_session
with open_session(SessionSettings("local[1]", properties=json.loads(sys.argv[1]), is_quiet=False)) as session:
    print(json.dumps(dict(session.sparkContext.getConf().getAll())))
"""


def test_files_and_callers_come_before_our_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.ui.enabled true\nspark.driver.memory 700m\nspark.sql.session.timeZone Europe/Zurich\n"
    )
    given = {"spark.driver.memory": "600m", "spark.ui.port": "0", "spark.local.dir": str(tmp_path)}
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ASK, json.dumps(given)]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(asked.stdout.splitlines()[-1])
    expected = {
        **given,
        "spark.ui.enabled": "true",
        "spark.sql.session.timeZone": "Europe/Zurich",
        "spark.app.name": "mailboat",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    }
    assert {key: found[key] for key in expected} == expected
