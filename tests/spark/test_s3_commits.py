"""How delta-rs reaches a bucket is what the session says of Hadoop's file system."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from subreplay.config.run import Schema
from subreplay.engine.spark.s3_commits import is_needed, read_storage_options

TABLE = "s3a://lake/out/runs"


def session(**settings: str) -> SparkSession:
    """A session with these settings; a line of a name stands for a point."""
    return cast(SparkSession, SimpleNamespace(conf={name.replace("_", "."): value for name, value in settings.items()}))


def test_what_is_not_set_delta_rs_takes_from_the_environment() -> None:
    assert read_storage_options(session(), TABLE) == {}


def test_credentials_region_and_endpoint_are_those_of_the_session() -> None:
    settings = {
        "spark_hadoop_fs_s3a_access_key": "somebody",
        "spark_hadoop_fs_s3a_secret_key": "secret",
        "fs_s3a_session_token": "token",  # as a caller sets it in the session itself
        "spark_hadoop_fs_s3a_endpoint": "https://store:9000",
        "spark_hadoop_fs_s3a_endpoint_region": "eu-central-1",
    }
    assert read_storage_options(session(**settings), TABLE) == {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_ENDPOINT_URL": "https://store:9000",
        "AWS_REGION": "eu-central-1",
    }


def test_settings_of_the_bucket_come_first() -> None:
    mine = {"fs_s3a_bucket_lake_access_key": "of lake", "fs_s3a_bucket_sea_access_key": "of sea"}
    found = read_storage_options(session(spark_hadoop_fs_s3a_access_key="of all", **mine), TABLE)
    assert found == {"AWS_ACCESS_KEY_ID": "of lake"}


@pytest.mark.parametrize(
    ("endpoint", "more", "expected"),
    [
        ("store:9000", {}, {"AWS_ENDPOINT_URL": "https://store:9000"}),
        ("store:9000", {"connection.ssl.enabled": "false"},
         {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_ALLOW_HTTP": "true"}),
        ("http://store:9000", {}, {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_ALLOW_HTTP": "true"}),
        ("https://store", {"path.style.access": "false"},
         {"AWS_ENDPOINT_URL": "https://store", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}),
    ],
)  # fmt: skip
def test_an_endpoint_is_a_url(endpoint: str, more: dict[str, str], expected: dict[str, str]) -> None:
    settings = {f"spark_hadoop_fs_s3a_{name}": value for name, value in {"endpoint": endpoint, **more}.items()}
    assert read_storage_options(session(**settings), TABLE) == expected


@pytest.mark.parametrize(
    ("root", "settings", "needed"),
    [
        ("s3a://lake/out", {}, True),
        ("S3://lake/out", {}, True),
        ("s3a://lake/out", {"spark_delta_logStore_s3a_impl": "a.LogStore"}, False),
        ("s3a://lake/out", {"spark_delta_logStore_s3_impl": "a.LogStore"}, True),
        ("hdfs://lake/out", {}, False),
        ("/lake/out", {}, False),
        (Schema(schema="main.audits"), {}, False),
    ],
)
def test_a_log_store_that_was_chosen_for_spark_is_kept(root: str, settings: dict[str, str], needed: bool) -> None:
    assert is_needed(session(**settings), root) is needed
