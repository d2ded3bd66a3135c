"""The stderr of the Java virtual machine: everything is shown except its usual messages."""

import os

import pytest

from notification_service.jobs.spark.session import _pass_on


def test_what_it_always_says_is_left_out_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    ours, its = os.pipe()
    os.write(
        its,
        b"WARNING: Using incubator modules: jdk.incubator.vector\n"
        b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\n"
        b'Setting default log level to "WARN".\n'
        b"To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).\n"
        b"26/11/22 02:44:36 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...\n"
        b"26/11/22 02:44:36 WARN SparkConf: Note that spark.local.dir will be overridden by the value set\n"
        b"26/11/22 02:44:36 WARN SparkConf: another\n"
        b"26/11/22 02:44:37 ERROR SparkContext: Error initializing SparkContext.\n"
        b"\tat a line of a trace \xff, and the last one has no end",
    )
    os.close(its)
    _pass_on(ours)
    assert capfd.readouterr().err.splitlines() == [
        "26/11/22 02:44:36 WARN SparkConf: another",
        "26/11/22 02:44:37 ERROR SparkContext: Error initializing SparkContext.",
        "\tat a line of a trace \ufffd, and the last one has no end",
    ]
