"""Options of Spark for a handful of rows: it compiles nothing, because compiling would take longer than everything else."""

from pathlib import Path

FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.showConsoleProgress": "false",
}
SHIPPED = Path(__file__).parents[3] / "conf" / "lookups.conf"


def fast_sources(directory: Path, more: str = "") -> Path:
    """Write the shipped sources of lookups for such a Spark, and return the file."""
    options = "\n".join(f'"{name}" = "{value}"' for name, value in FAST.items())
    path = directory / "fast.conf"
    path.write_text(f'include "{SHIPPED}"\n{more}\nspark.options {{\n{options}\n}}\n')
    return path
