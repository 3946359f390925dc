"""A standalone cluster of Spark on loopback: a master and two workers of one core each, Java processes of the jars that
pyspark brings along."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

SPARK = Path(pyspark.__file__).parent
SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = Path(sysconfig.get_path("purelib"))
QUICK = {
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    f'"-XX:SharedArchiveFile={SPARK}/jars/spark-classes.jsa" -Xlog:cds*=off',
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.log.level": "ERROR",
}
"""Of a session on a cluster of this machine: small executors, which start quickly."""
SETTINGS = QUICK | {"spark.executorEnv.PYTHONPATH": str(SOURCE)}
"""Of a session whose executors find this package."""
_PATIENCE = 120.0  # seconds
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    address: str
    workers: tuple[psutil.Process, ...]

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        children = [child for worker in self.workers for child in worker.children()]
        return [child for child in children if _EXECUTOR in child.cmdline()]

    def python_workers(self) -> list[psutil.Process]:
        """The Python workers of the executors: the processes that their daemons have forked."""
        daemons = [child for executor in self.executors() for child in executor.children()]
        return [worker for daemon in daemons for worker in daemon.children()]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster that runs until the end. Its nodes know no Python package but those that an environment is given."""
    port, started = free_port(), list[subprocess.Popen[bytes]]()
    address = f"spark://127.0.0.1:{port}"

    def start(name: str, *arguments: str) -> psutil.Process:
        classes = f"org.apache.spark.deploy.{name.partition('-')[0]}"
        command = [_java(), *_JAVA, "-cp", f"{SPARK}/jars/*", classes, "--host", "127.0.0.1", *arguments]
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        mine |= {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": f"{folder}/{name}"}
        mine.pop("SPARK_SUBMIT_OPTS", None)
        mine["SPARK_SCALA_VERSION"] = "2.13"  # which the scripts of a distribution set
        with (folder / f"{name}.log").open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, env=mine, start_new_session=True)
        started.append(process)
        return psutil.Process(process.pid)

    try:
        start("master.Master", "--port", str(port), "--webui-port", str(free_port()))
        workers = tuple(
            start(f"worker.Worker-{number}", address, "--cores", "1", "--memory", "2g", "--webui-port", "0")
            for number in range(2)
        )
        log = folder / "master.Master.log"
        wait_until(lambda: log.read_text().count("Registering worker") == len(workers))
        yield Cluster(address, workers)
    finally:
        children = [child for each in started for child in psutil.Process(each.pid).children(recursive=True)]
        for each in started:
            each.kill()
            each.wait()
        for child in children:
            if child.is_running():
                child.kill()


@contextmanager
def connect_server(running: Cluster, folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server with Delta whose executors run on the cluster; its address."""
    port, log = free_port(), folder / "connect.log"
    delta = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    more = {"spark.connect.grpc.binding.port": str(port), "spark.pyspark.python": sys.executable}
    command = [f"{SPARK}/bin/spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--master", running.address, *settings_as_options({**settings, **delta, **more}), "spark-internal"]
    with log.open("wb") as said:
        environment = os.environ | {"SPARK_HOME": str(SPARK)}
        server = subprocess.Popen(command, stdout=said, stderr=said, env=environment, start_new_session=True)
    try:
        wait_until(lambda: is_open(port))
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()  # the script has become Java
        server.wait()


def is_open(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def wait_until(holds: Callable[[], object]) -> None:
    """Wait for a condition. Raises ``TimeoutError`` where it does not hold in time."""
    end = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the condition did not hold in time")
        time.sleep(0.05)


def free_port() -> int:
    """A port of loopback on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def link_packages(folder: Path) -> Path:
    """A folder of all installed packages except this one."""
    folder.mkdir(parents=True)
    for entry in PACKAGES.iterdir():
        if "subreplay" not in entry.name:
            (folder / entry.name).symlink_to(entry)
    return folder


def base_python() -> str:
    """The Python of which the environment of the tests was made; it has no packages of its own."""
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def pack_environment(folder: Path) -> Path:
    """An archive of an environment with this package, as spark.archives takes it. Other packages are links in it."""
    environment = folder / "environment"
    packages = link_packages(environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages")
    (packages / "subreplay").symlink_to(SOURCE / "subreplay")
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to(base_python())
    (environment / "pyvenv.cfg").write_text(f"home = {Path(base_python()).parent}\n", encoding="utf-8")
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(environment, ".")
    return archive


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def settings_as_options(settings: Mapping[str, str]) -> list[str]:
    """Settings as options of spark-submit."""
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
