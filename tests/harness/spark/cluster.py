"""A standalone cluster of Spark on loopback for one test: a master and its workers, each a process, from the jars of PySpark."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
from harness.waiting import wait_until

from servers.process import Process
from servers.programs import find_java
from servers.server import LOOPBACK, hold_port

_SECONDS = 600
_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dspark.worker.timeout=600")
"""The master does not give up a worker that gets no core for a while."""
_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """Each worker offers one core, so a job that asks for all has an executor on each. `directory` is for their files."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="resequencer-spark-"))
        self._held = hold_port(), hold_port()
        self._port, self._page = (each.getsockname()[1] for each in self._held)
        self._processes: list[Process] = []

    def start(self, workers: int = 2) -> None:
        """Start the cluster, and wait until the master knows all workers."""
        self._launch("master.Master", "--port", str(self._port), "--webui-port", str(self._page))
        for _ in range(workers):
            self._launch_worker()
        self._wait_for(workers)

    @contextmanager
    def another_worker(self) -> Iterator[None]:
        """Run another worker within the context."""
        before = self._count()
        self._launch_worker()
        self._wait_for(before + 1)
        try:
            yield
        finally:
            self._processes.pop().kill()

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def kill(self) -> None:
        """Kill the cluster with its executors, even one that did not start."""
        for process in reversed(self._processes):
            process.kill()
        for held in self._held:
            held.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch_worker(self) -> None:
        directory = str(self.directory / f"worker-{len(self._processes)}")
        self._launch("worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", directory, self.master)

    def _wait_for(self, workers: int) -> None:
        wait_until(lambda: self._count() == workers, f"all workers are known; {self.directory} has their logs", _SECONDS, 0.2)

    def _launch(self, kind: str, *arguments: str) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        command = [str(find_java()), *_JAVA, "-cp", f"{home}/jars/*", f"{_DEPLOY}.{kind}", "--host", LOOPBACK, *arguments]
        log = self.directory / f"{len(self._processes)}.log"
        # The scripts of Spark would find the version of Scala by looking at its jars.
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": LOOPBACK}
        self._processes.append(Process.launch(command, log, environment))

    def _count(self) -> int:
        """Count the workers that the master can use. While the master starts, its page is no JSON yet."""
        assert all(process.is_running for process in self._processes), self._said()
        try:
            answer = httpx.get(f"http://{LOOPBACK}:{self._page}/json/", trust_env=False, timeout=10)
            return int(answer.json()["aliveworkers"])
        except (httpx.HTTPError, ValueError):
            return 0

    def _said(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-2_000:] for log in sorted(self.directory.glob("*.log")))
