"""`fcritic watch` as a process: what it serves, what it refuses, how it ends, and the page in a real browser."""

from http.client import HTTPConnection
import json
from pathlib import Path
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from fcritic.cli.dispatch import run
from fcritic.logs.metrics import JSONLog

NAME = "<script>document.title='owned'<" + "&quot;onload=alert(1)>"


def a_run(folder: Path, **config):
    folder.mkdir(parents=True)
    chosen = {
        "recipe": "<b>fac</b>",
        "task": "probe<img src=x onerror=document.title='owned'>",
        "seeds": 1,
        "steps": 9,
    }
    (folder / "config.json").write_text(json.dumps(chosen | config))
    (folder / "lock").touch()
    log = JSONLog(folder / "metrics.jsonl")
    for frame in range(1, 10):
        values = {"mean_actor": 10.0 * frame, "best_actor": 11.0 * frame, "actors": [9.0, 1234.5]}
        log.write([{"seed": 0, "env_steps": frame, "kind": "evaluation"} | values])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    a_run(folder / NAME)
    a_run(folder / "plain", recipe="sac", task="cheetah-run")
    return folder


@pytest.fixture(scope="module")
def server(runs):
    command = [sys.executable, "-m", "fcritic", "watch", str(runs), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process, int(re.search(r"localhost:(\d+)", process.stdout.readline())[1])
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=10)
    assert process.returncode == 0 and error == "" and "the runs go on" in out


def ask(port, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_data_are_those_of_the_runs(server):
    status, headers, body = ask(server[1], "/data.json?metrics=evaluation/mean_actor")
    data = json.loads(body)
    assert status == 200 and headers["Content-Type"].startswith("application/json")
    assert [run["name"] for run in data["runs"]] == [NAME, "plain"]
    assert {run["state"] for run in data["runs"]} == {"finished"}
    for found in data["curves"].values():
        assert found["evaluation/mean_actor"] == [[0, list(range(1, 10)), [10.0 * frame for frame in range(1, 10)]]]
    again = json.loads(ask(server[1], f"/data.json?metrics=evaluation/mean_actor&since={data['revision']}")[2])
    assert again["runs"] == [] and again["curves"] == {} and again["ids"] == data["ids"]
    assert json.loads(ask(server[1], "/data.json?since=-&metrics=%00,../x&runs=zz&a=&b=" + "x" * 5000)[2])["runs"]


def test_only_a_fixed_list_of_addresses_is_served(server, runs):
    for path in ("/", "/page.js", "/page.css", "/chart.js", "/lines.js", "/table.js"):
        assert ask(server[1], path)[0] == 200
    inside = f"/{NAME}/config.json"
    for path in ("/../pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd", "/plain/config.json", "/server.py"):
        status, _, body = ask(server[1], path)
        assert status == 404 and body == b"there is no such address\n"
    assert ask(server[1], inside.replace("<", "%3C").replace(">", "%3E"))[0] == 404


def test_every_answer_forbids_what_the_page_does_not_need(server):
    for path in ("/", "/data.json", "/nothing"):
        headers = ask(server[1], path)[1]
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8420", "localhost.evil", "", "127.0.0.1.evil"])
def test_a_foreign_name_that_leads_here_is_refused(server, host):
    assert [ask(server[1], path, Host=host)[0] for path in ("/", "/data.json")] == [403, 403]


def test_own_names_are_answered_at_any_port_but_not_for_foreign_pages(server):
    for host in ("localhost", "localhost:9999", "127.0.0.1:1", "[::1]:8420", "LOCALHOST:1"):
        assert ask(server[1], "/data.json", Host=host)[0] == 200
    assert ask(server[1], "/data.json", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(server[1], "/", Sec_Fetch_Site="cross-site")[0] == 200  # a link to the page


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "MADEUP"])
def test_only_get_is_answered(server, method):
    status, headers, _ = ask(server[1], "/data.json", method)
    assert status == 405 and headers["Allow"] == "GET"


def test_it_listens_on_this_machine_only(server):
    with socket.socket() as other, pytest.raises(OSError):
        other.connect((socket.gethostbyname(socket.gethostname()), server[1]))
        if other.getpeername()[0].startswith("127."):
            raise OSError("this machine has no other address")


def test_a_port_in_use_is_one_line(server, runs, capsys):
    assert run(["watch", str(runs), "--port", str(server[1])]) == 2
    assert capsys.readouterr().err == (
        f"fcritic: port {server[1]} is in use; choose another with --port, or any with --port 0\n"
    )
    for port in ("-1", "70000"):
        assert run(["watch", str(runs), "--port", port]) == 2
        assert "--port must be between 0 and 65535" in capsys.readouterr().err
    assert run(["watch", str(runs / "nothing")]) == 2
    assert "is not a folder; name one that contains runs" in capsys.readouterr().err


def test_a_snapshot_as_json(runs, capsys):
    assert run(["watch", str(runs), "--json"]) == 0
    snapshot = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["mean_actor"]) for each in snapshot["runs"]] == [(NAME, 90.0), ("plain", 90.0)]
    assert snapshot["runs"][1]["actors"] == [{"seed": 0, "returns": [9.0, 1234.5]}]


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("choice", ["", "#group=run&x=hours&smooth=0.5&split=false&metrics=evaluation/best_actor"])
def test_the_page_shows_names_as_text_and_makes_no_error(server, tmp_path, choice):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run([*command, f"http://localhost:{server[1]}/{choice}"], capture_output=True, timeout=60)
    page, log = done.stdout.decode(), done.stderr.decode()
    assert "CONSOLE" not in log, log
    assert "<title>fcritic watch</title>" in page and "<img" not in page and page.count("<script") == 1
    shown = NAME.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f">{shown}</button>" in page and "up to date" in page and "2 finished" in page
    assert page.count("<canvas") == (1 if "split=false" in choice else 2)
    assert ("2 runs have no journal" in page) == ("hours" in choice)
