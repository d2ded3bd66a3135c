"""The log4j2 configuration of Kafka and Infinispan: they log to stdout, which is the server's log file."""

from pathlib import Path

_CONFIGURATION = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="OUTPUT" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %c{1} %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="INFO">
      <AppenderRef ref="OUTPUT"/>
    </Root>
  </Loggers>
</Configuration>
"""


def write_log_configuration(directory: Path) -> Path:
    path = directory / "log4j2.xml"
    path.write_text(_CONFIGURATION)
    return path
