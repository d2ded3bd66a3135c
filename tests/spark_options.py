"""Options of a Spark that is to handle a handful of rows: it compiles nothing, for that would take longer than all else."""

FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.showConsoleProgress": "false",
}
