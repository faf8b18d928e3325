"""Does Spark work over JDBC? A frame written, appended and read back: with conditions and aggregates that the server computes, in parts, and with a query."""

import datetime as dt
import decimal
import os
import pathlib

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from steps import DATABASE, HOST, PORT, USER

JAR = os.environ["TARN_NEWEST_JDBC_JAR"]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", JAR)
    .config("spark.driver.extraClassPath", JAR)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "Europe/Zurich")
    .config("spark.sql.warehouse.dir", str(pathlib.Path(os.environ["TARN_TEST_DIR"]) / "warehouse"))
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
AT = {"url": f"jdbc:postgresql://{HOST}:{PORT}/{DATABASE}", "user": USER, "driver": "org.postgresql.Driver"}
NOON = dt.datetime(2026, 7, 1, 10, 0, tzinfo=dt.timezone.utc)
ROWS = 2000
SCHEMA = t.StructType([
    t.StructField("id", t.LongType(), False), t.StructField("city", t.StringType()), t.StructField("fare", t.DecimalType(10, 2)),
    t.StructField("day", t.DateType()), t.StructField("at", t.TimestampType()), t.StructField("x", t.DoubleType()), t.StructField("yes", t.BooleanType()),
])  # fmt: skip


def rows(first, n):
    day = dt.date(2026, 2, 28)
    cities = ("Bern", "Chur", None)
    return [(i, cities[i % 3], decimal.Decimal(i) / 4, day, NOON + dt.timedelta(seconds=i), i / 8, i % 2 == 0) for i in range(first, first + n)]


def read(**options):
    return spark.read.format("jdbc").options(**AT, **options).load()


def write(frame, table, mode, **options):
    frame.write.format("jdbc").options(**AT, dbtable=table, **options).mode(mode).save()


def begin():
    write(spark.createDataFrame(rows(0, ROWS), SCHEMA), "rides", "errorifexists")
    write(spark.createDataFrame(rows(ROWS, ROWS), SCHEMA), "rides", "append", batchsize="500")
    frame = read(dbtable="rides")
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert kinds == {"id": "bigint", "city": "string", "fare": "decimal(10,2)", "day": "date", "at": "timestamp", "x": "double", "yes": "boolean"}, kinds
    assert frame.count() == 2 * ROWS
    row = frame.where(f.col("id") == 1).first()
    assert (row.city, row.fare, row.day, row.x, row.yes) == ("Chur", decimal.Decimal("0.25"), dt.date(2026, 2, 28), 0.125, False), row
    assert frame.where("id = 1").select(f.unix_timestamp("at")).first()[0] == int(NOON.timestamp()) + 1


def pushed():
    frame = read(dbtable="rides")
    by_city = frame.where("id >= 1000 AND city IS NOT NULL").groupBy("city").agg(f.count("*").alias("n"), f.sum("fare").alias("fares"), f.max("at").alias("last"))
    assert {row.city: row.n for row in by_city.collect()} == {"Bern": 1000, "Chur": 1000}
    assert frame.where(f.col("city").isin("Bern", "Nowhere") & f.col("day").between("2026-01-01", "2026-12-31")).count() == 1334
    assert frame.where(f.col("at") >= f.lit(NOON)).orderBy(f.col("id").desc()).limit(3).select("id").collect()[0].id == 2 * ROWS - 1
    assert frame.where("city LIKE 'B%'").agg(f.avg("x")).first()[0] is not None


def parts():
    frame = read(dbtable="rides", partitionColumn="id", lowerBound="0", upperBound=str(2 * ROWS), numPartitions="4", fetchsize="100")
    assert frame.rdd.getNumPartitions() == 4 and frame.select(f.sum("id")).first()[0] == sum(range(2 * ROWS))
    query = read(query="SELECT city, count(*) AS n FROM rides GROUP BY city HAVING count(*) > 10")
    assert query.count() == 3


def again():
    write(spark.createDataFrame(rows(0, 10), SCHEMA), "rides", "overwrite", truncate="true")
    assert read(dbtable="rides").count() == 10
    write(spark.createDataFrame(rows(0, 20), SCHEMA), "rides", "overwrite")
    assert read(dbtable="rides").count() == 20
    typed = spark.createDataFrame(rows(0, 5), SCHEMA).select("id", "city")
    write(typed, "named", "overwrite", createTableColumnTypes="city varchar(40)")
    assert read(dbtable="named").count() == 5


for part in (begin, pushed, parts, again):
    part()
    print(f"{part.__name__}: passed", flush=True)
spark.stop()
