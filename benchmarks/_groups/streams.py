"""The same groups on Kafka Streams: a Java program, with the version of the broker."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

from benchmarks._groups.stage import PARTITIONS, Job, WrongResult
from benchmarks._processes import cpu_of_family
from benchmarks._worker import Spent
from servers.java import find_java, get_jars, write_log_configuration

_PROGRAM = Path(__file__).parents[1] / "java" / "GroupsOnStreams.java"
_JAVA = ("-Xmx1g",)
_LOG, _RUNNING = "streams.log", "running"
_END_SECONDS = 60
_LOOK_SECONDS = 0.02


def streams(job: Job) -> Spent:
    """Apply all commands, with one thread. The time runs from when the partitions are assigned until all is committed.

    CPU is that of the Java process in this time, its compiler and collector too.
    """
    with _started(job) as program, _positions(job) as positions:
        while _RUNNING not in (job.directory / _LOG).read_text().splitlines():
            _look_at(program, job)
        job.note_ready()
        wall, cpu = time.perf_counter(), cpu_of_family(program.pid)
        while positions() < job.load.count:
            _look_at(program, job)
        return Spent(time.perf_counter() - wall, cpu_of_family(program.pid) - cpu)


@contextmanager
def _started(job: Job) -> Iterator["subprocess.Popen[bytes]"]:
    log = write_log_configuration(job.directory)
    java = [str(find_java()), *_JAVA, f"-Dlog4j2.configurationFile={log}", "-cp", f"{get_jars('kafka-streams')}/*"]
    told = [job.broker.bootstrap, job.name, str(job.directory / "state"), job.load.commands, job.completions]
    with (job.directory / _LOG).open("wb") as output:
        program = subprocess.Popen([*java, str(_PROGRAM), *told], stdin=subprocess.PIPE, stdout=output, stderr=output)
    try:
        yield program
        program.communicate(timeout=_END_SECONDS)
    finally:
        program.kill()
        program.wait()


def _look_at(program: "subprocess.Popen[bytes]", job: Job) -> None:
    if program.poll() is not None:
        raise WrongResult(f"the program has ended with {program.returncode}: {(job.directory / _LOG).read_text()[-2_000:]}")
    time.sleep(_LOOK_SECONDS)


@contextmanager
def _positions(job: Job) -> Iterator["_Positions"]:
    with closing(KafkaConsumer(bootstrap_servers=job.broker.bootstrap, group_id=job.name, enable_auto_commit=False)) as consumer:
        yield _Positions(consumer, job)


class _Positions:
    """How many commands are committed. The program writes nothing to their topic, and nobody else in transactions."""

    def __init__(self, consumer: KafkaConsumer, job: Job) -> None:
        self._consumer = consumer
        self._names = [TopicPartition(job.load.commands, number) for number in range(PARTITIONS)]

    def __call__(self) -> int:
        return sum(self._consumer.committed(each) or 0 for each in self._names)
