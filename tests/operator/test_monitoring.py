"""Alerts and dashboards of the chart, evaluated by Prometheus itself."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from mailboat.api.client import HttpControl
from mailboat.control.subscriber_directory import Absence
from mailboat.model.paths import parse_path
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat_operator.metrics import OperatorMetrics
from support.forked_programs import start_mailboat
from support.free_ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
RUNBOOKS = "https://mailboat-dev.github.io/mailboat/alerts.html"
AUTHOR = 'namespace="shop",publisher="author"'
HOME_DISK = 'pod="author-0",used_by="home, journal, blobs"'
TARGET_DISK = 'pod="author-0",used_by="target of web"'
SCRAPING = {"scrape_interval": "1s", "scrape_timeout": "1s"}
LOOK_SECONDS = 1.0
"""Once per scrape."""
LOOKS = round(PATIENCE_SECONDS / LOOK_SECONDS)
HEALTHY = {"current", "importing", "retrying", "new"}
"""States of subscribers without an alert of their own: a queue that is stuck is one (`MailboatQueueBlocked`), a
subscriber that is `new` has packages that grow old (`MailboatSubscribersLag`)."""

CASES: list[tuple[str, str, str, str, str]] = [
    ("MailboatOperatorDown", 'mailboat_operator_leading{namespace="system"}', "1x60", "1x2 0x60", "critical"),
    (
        "MailboatReconciliationFails",
        'mailboat_operator_reconciliations_total{kind="Journal",outcome="BrokersRefused"}',
        "5x60",
        "0+1x60",
        "warning",
    ),
    (
        "MailboatAgentDown",
        'up{job="system/mailboat-agents",namespace="shop",pod="author-0"}',
        "1x60",
        "1x2 0x60",
        "critical",
    ),
    ("MailboatScrapeIncomplete", 'mailboat_agent_scrape_failures_total{pod="author-0"}', "5x60", "0+1x60", "warning"),
    ("MailboatSubscribersLag", f"mailboat_publisher_oldest_queued_seconds{{{AUTHOR}}}", "600x60", "0+60x60", "warning"),
    ("MailboatQueueBlocked", f'mailboat_publisher_queues{{{AUTHOR},state="blocked"}}', "0x60", "1x60", "critical"),
    ("MailboatPackagesGivenUp", f"mailboat_publisher_error_queue_packages{{{AUTHOR}}}", "0x60", "3x60", "warning"),
    (
        "MailboatSubscriberSilent",
        f'mailboat_publisher_subscribers{{{AUTHOR},state="silent"}}',
        "1x3 _x60",
        "1x60",
        "critical",
    ),
    (
        "MailboatSubscriberStopped",
        f'mailboat_publisher_subscribers{{{AUTHOR},state="stopped"}}',
        "1x14 _x60",
        "1x60",
        "critical",
    ),
    *(
        (
            "MailboatSubscriberWaits",
            f'mailboat_publisher_subscribers{{{AUTHOR},state="{state}"}}',
            "1x14 _x60",
            "1x60",
            "warning",
        )
        for state in ("waiting", "waiting-for", "starting")
    ),
    (
        "MailboatSubscriberSuspended",
        f'mailboat_publisher_subscribers{{{AUTHOR},state="suspended"}}',
        "1x1430 0x300",
        "1x1700",
        "warning",
    ),
    (
        "MailboatReceiverFails",
        f'mailboat_publisher_waiting_events{{{AUTHOR},receiver="crm"}}',
        "1x5 0x60",
        "1x60",
        "warning",
    ),
    (
        "MailboatEventsRefused",
        f'mailboat_publisher_event_deliveries_total{{{AUTHOR},receiver="crm",outcome="refused"}}',
        "5x60",
        "0+1x60",
        "warning",
    ),
    ("MailboatDiskAlmostFull", f"mailboat_agent_disk_free_bytes{{{TARGET_DISK}}}", "11x60", "9x60", "critical"),
]
"""Alert, series, its values a minute apart when all is well and when something is wrong, and the severity."""


def program(name: str) -> str:
    command = [sys.executable, str(ROOT / "tests" / "kind" / "builds.py"), name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def rule(helm: str) -> dict[str, Any]:
    command = [
        helm,
        "template",
        "mailboat",
        str(CHART),
        "--namespace",
        "system",
        "--show-only",
        "templates/alerts.yaml",
    ]
    command += ["--set", "monitoring.prometheusRule.enabled=true"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = yaml.safe_load(printed)["spec"]
    return found


def alerts_of(rule: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for group in rule["groups"] for item in group["rules"]]


def busy_receiver(taken: str, waiting: str) -> dict[str, Any]:
    """A webhook that falls behind from the thirtieth minute on: the alert is silent before, and fires afterwards."""
    receiver, query = f'{AUTHOR},receiver="crm"', 'ALERTS{alertname="MailboatReceiverFails",alertstate="firing"}'
    counts = (("delivered", taken), ("failed", "0+1x60"))
    inputs = [{"series": f"mailboat_publisher_waiting_events{{{receiver}}}", "values": waiting}]
    inputs += [
        {"series": f'mailboat_publisher_event_deliveries_total{{{receiver},outcome="{outcome}"}}', "values": values}
        for outcome, values in counts
    ]
    looks = [
        {
            "expr": f"count({query}) or vector(0)",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": firing}],
        }
        for minute, firing in ((29, 0), (58, 1))
    ]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": looks}


def full_target(rule: dict[str, Any]) -> dict[str, Any]:
    """Of two file systems of a pod, the one of a target is almost full: the alert names that one only."""
    [alert] = [item for item in alerts_of(rule) if item["alert"] == "MailboatDiskAlmostFull"]
    summary = "The disk of author-0 with target of web has 9% left."
    fired = {
        "exp_labels": {"pod": "author-0", "used_by": "target of web", "severity": "critical"},
        "exp_annotations": {**alert["annotations"], "summary": summary},
    }
    sizes = {
        "_free_bytes": {HOME_DISK: "50x60", TARGET_DISK: "9x60"},
        "_bytes": {HOME_DISK: "100x60", TARGET_DISK: "100x60"},
    }
    inputs = [
        {"series": f"mailboat_agent_disk{name}{{{disk}}}", "values": values}
        for name, disks in sizes.items()
        for disk, values in disks.items()
    ]
    rules = [{"alertname": alert["alert"], "eval_time": "40m", "exp_alerts": [fired]}]
    return {"interval": "1m", "input_series": inputs, "alert_rule_test": rules}


def test_each_alert_fires_when_something_is_wrong_and_not_before(rule: dict[str, Any], tmp_path: Path) -> None:
    assert {name for name, *_ in CASES} == {item["alert"] for item in alerts_of(rule)}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule))
    tests = []
    for name, series, well, wrong, severity in CASES:
        shown = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
        for values, expected in ((well, 0), (wrong, 1)):
            eval_time = "1460m" if name == "MailboatSubscriberSuspended" else "40m"
            query = {"expr": f'count({shown[:-1]},severity="{severity}"}}) or vector(0)', "eval_time": eval_time}
            query["exp_samples"] = [{"labels": "{}", "value": expected}]
            inputs = [{"series": series, "values": values}]
            inputs += [{"series": f"mailboat_agent_disk_bytes{{{TARGET_DISK}}}", "values": "100x60"}]
            tests.append({"interval": "1m", "input_series": inputs, "promql_expr_test": [query]})
    tests.append(busy_receiver("0+5x30 150x30", "3x60"))
    tests.append(busy_receiver("0+1x60", "3x30 20+5x30"))  # it goes on slowly, and more events come
    tests.append(full_target(rule))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    promtool = program("promtool")
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_state_of_a_subscriber_is_healthy_or_has_an_alert(rule: dict[str, Any]) -> None:
    watched = re.findall(r'mailboat_publisher_subscribers\{state=~?"([a-z|-]+)"', json.dumps(rule).replace("\\", ""))
    alarming = {state for states in watched for state in states.split("|")}
    assert alarming | HEALTHY == {*SubscriberPhase, *Absence}
    assert not alarming & HEALTHY


def test_each_alert_links_to_its_section_of_the_docs(rule: dict[str, Any]) -> None:
    page = (ROOT / "docs/alerts.md").read_text()  # tests/repo/test_docs.py finds the sections in the site
    headings = [line.removeprefix("## ") for line in page.splitlines() if line[:3] == "## "]
    for item in alerts_of(rule):
        assert item["annotations"]["runbook_url"] == f"{RUNBOOKS}#{item['alert'].lower()}"
        assert item["alert"] in headings


def test_the_chart_has_each_dashboard_as_a_config_map_that_grafana_finds(helm: str) -> None:
    command = [helm, "template", "mailboat", str(CHART), "--show-only", "templates/dashboards.yaml"]
    command += ["--set", "monitoring.dashboards.enabled=true"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for item in yaml.load_all(printed, yaml.CSafeLoader):
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        found |= {name: json.loads(text) for name, text in item["data"].items()}
    assert found == {dashboard.name: json.loads(dashboard.read_text()) for dashboard in DASHBOARDS}


# --------------------------------------------------------------------------------------------------------- real scrapes


@contextmanager
def running_agent(folder: Path) -> Iterator[str]:
    """An agent whose subscriber fails while the file `frozen` exists; its URL."""
    [port] = free_ports(1)
    (folder / "site/news").mkdir(parents=True)
    (folder / "site/news/1.html").write_text("Summer timetable")
    hook = ["test", "!", "-e", str(folder / "frozen")]
    edge = {"name": "edge", "target": "files:edge", "editable": True, "hooks": {"before": hook}}
    document = {
        "http": {"port": port},
        "agents": {"publishers": [{"name": "author", "source": "site"}], "subscribers": [edge]},
        # without limit: a slow start of Prometheus must not use the retries up
        "subscriber": {"first_pause_seconds": 0.1, "longest_pause_seconds": 0.5, "max_retries": None},
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(document))
    with chdir(folder):
        process = start_mailboat(["agent", "run", "--config", "agent.yaml"], folder / "errors")
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


@contextmanager
def served(text: Callable[[], bytes]) -> Iterator[str]:
    """The metrics of an operator, over HTTP; host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def running_prometheus(folder: Path, targets: dict[str, str]) -> Iterator[httpx2.Client]:
    """A server that scrapes the targets, by the pod's name, each second."""
    [port] = free_ports(1)
    static = [{"targets": [one], "labels": {"namespace": "shop", "pod": pod}} for pod, one in targets.items()]
    document = {"global": SCRAPING, "scrape_configs": [{"job_name": "all", "static_configs": static}]}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
    command = [program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, verify=False) as client:
                yield client
        finally:
            process.terminate()


def values_of(prometheus: httpx2.Client, expression: str) -> list[float]:
    """The numbers that a query finds now; none while the server starts."""
    try:
        answer = prometheus.get("/query", params={"query": expression})
    except httpx2.TransportError:
        return []
    if answer.status_code == 503:
        return []
    assert answer.status_code == 200, f"{expression}: {answer.text}"
    found = [float(item["value"][1]) for item in answer.json()["data"]["result"]]
    return [item for item in found if not math.isnan(item)]


def queries() -> dict[str, str]:
    """Dashboard and panel → query, with the values of this run for Grafana's variables."""
    known = {"$__rate_interval": "2m", "$namespace": "shop", "$publisher": ".*", "$subscriber": "edge"}
    found = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in known.items():
                    expression = expression.replace(name, value)
                assert "$" not in expression
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = expression
    return found


def test_every_panel_of_the_dashboards_shows_data_of_a_real_run(tmp_path: Path) -> None:
    operator = OperatorMetrics()
    (tmp_path / "frozen").touch()

    def reconcile() -> None:
        operator.looked("Journal", "ready", 0.1)
        operator.wrote("patch", "StatefulSet")
        operator.reported("Ready")
        operator.figures("SubscriberPool", "shop", "edge", {"pool_lag_packages": 1.0, "pool_blocked_members": 0.0})

    reconcile()
    with (
        running_agent(tmp_path) as agent,
        served(operator.text) as endpoint,
        running_prometheus(tmp_path, {"author-0": agent, "operator-0": endpoint}) as prometheus,
    ):

        def sees(expression: str) -> None:
            wait_until(lambda: bool(values_of(prometheus, expression)), expression)

        with HttpControl(f"http://{agent}") as control:
            control.distribute("author", add_request([parse_path("/news")]))
            sees("mailboat_subscriber_import_failures_total > 0")
            (tmp_path / "frozen").unlink()
            sees("mailboat_subscriber_imported_packages_total == 1")
            missing = dict(queries())

            def is_complete() -> bool:
                # A rate needs a change within its window: on a slow machine one that was made before would leave it.
                control.distribute("author", add_request([parse_path("/news")]))
                reconcile()
                for panel in [panel for panel, asked in missing.items() if values_of(prometheus, asked)]:
                    del missing[panel]
                return not missing

            for _ in range(LOOKS):
                if is_complete():
                    break
                threading.Event().wait(LOOK_SECONDS)
            assert missing == {}
