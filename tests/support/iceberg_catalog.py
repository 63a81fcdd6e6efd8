"""A REST catalog of Iceberg in a process of its own: Iceberg's own Java servlet, from Maven.

The servlet and its adapter are those with which Iceberg tests its REST client. They are in the
tests of iceberg-core, in front of Iceberg's JDBC catalog with a database of SQLite: so the catalog
lives on when the server is killed. Jetty serves the servlet. Maven brings the libraries, and
PySpark has those of Hadoop.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

ICEBERG: Final = "1.10.1"
"""The newest Iceberg whose tests Maven has."""
_DEPENDENCIES: Final = (
    ("org.apache.iceberg", "iceberg-core", ICEBERG, ""),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, "tests"),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.0.16", ""),
    ("org.xerial", "sqlite-jdbc", "3.47.1.0", ""),
)
_OF_SPARK: Final = ("hadoop-client-api", "hadoop-client-runtime", "jcl-over-slf4j")


def libraries(place: Path) -> list[Path]:
    """Bring the libraries of the server into a directory."""
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>"
        + (f"<classifier>{kind}</classifier>" if kind else "") + "</dependency>"
        for group, name, version, kind in _DEPENDENCIES
    )  # fmt: skip
    place.mkdir(parents=True)
    (place / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>lognode</groupId><artifactId>catalog</artifactId><version>1</version>"
        f"<dependencies>{listed}</dependencies></project>"
    )
    done = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"], cwd=place,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [*(place / "jars").glob("*.jar"), *(of_spark(name) for name in _OF_SPARK)]


def of_spark(name: str) -> Path:
    """Return a library that comes with PySpark."""
    (found,) = (Path(pyspark.__file__).parent / "jars").glob(f"{name}-[0-9]*.jar")
    return found


class Catalog(NamedTuple):
    """A running server."""

    uri: str
    java: JavaGateway

    @property
    def properties(self) -> dict[str, str]:
        """How PyIceberg reaches the server."""
        return {"type": "rest", "uri": self.uri}


@contextmanager
def rest_catalog(jars: list[Path], place: Path, port: int = 0) -> Iterator[Catalog]:
    """Serve the catalog whose database and warehouse are in the place. The server is killed at the
    end. `port`: 0 takes a free port."""
    place.mkdir(parents=True, exist_ok=True)
    classpath = ":".join(map(str, jars))
    gateway_port, token, process = launch_gateway(
        jarpath=str(of_spark("py4j")), classpath=classpath, die_on_exit=True, enable_auth=True,
        return_proc=True, redirect_stdout=subprocess.DEVNULL, redirect_stderr=subprocess.DEVNULL,
    )  # fmt: skip
    java = JavaGateway(
        gateway_parameters=GatewayParameters(port=gateway_port, auth_token=token, auto_convert=True)
    )
    try:
        yield Catalog(f"http://127.0.0.1:{_served(java, place, port)}", java)
    finally:
        java.close()
        process.kill()
        process.wait()
        process.stdin.close()


def _served(java: Any, place: Path, port: int) -> int:
    """Start the servlet; return its port."""
    jvm = java.jvm
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    given = {"uri": f"jdbc:sqlite:{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}
    catalog.initialize("served", given)
    servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(
        jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
    )
    jetty = jvm.org.eclipse.jetty
    handler = jetty.ee10.servlet.ServletContextHandler()
    handler.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(handler)
    server.start()
    return int(server.getURI().getPort())
