# SPDX-License-Identifier: Apache-2.0
"""Metrics of a process in the Prometheus format, and the port that serves them.

A label has few values: names of methods, drivers, kinds, states. Never ids, hosts or projects.
"""

import atexit
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPMethod
from typing import Any

import prometheus_client
from oslo_log import log
from prometheus_client import multiprocess, registry, values

from cyborg import errors

LOG = log.getLogger(__name__)

#: names the directory in which the processes of a service share their metrics
SHARED = 'PROMETHEUS_MULTIPROC_DIR'
#: seconds, from what memory answers to what loads an image
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120, 600)
METHODS = frozenset(HTTPMethod)

REGISTRY = prometheus_client.CollectorRegistry()
#: name of each metric, as Prometheus stores it -> its labels
LABELS: dict[str, tuple[str, ...]] = {}

# they would double the number of series
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


def _counter(name: str, text: str, *labels: str) -> prometheus_client.Counter:
    LABELS[f'{name}_total'] = labels
    return prometheus_client.Counter(name, text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str) -> prometheus_client.Histogram:
    LABELS.update({f'{name}_{part}': labels for part in ('count', 'sum')})
    LABELS[f'{name}_bucket'] = *labels, 'le'
    return prometheus_client.Histogram(name, text, labels, registry=REGISTRY, buckets=BUCKETS)


# Every metric has labels. One without would create its value here, before
# share_between_processes() can choose how values are stored.
API_REQUESTS = _histogram(
    'cyborg_api_request_duration_seconds',
    'Requests to the API by method, collection and status of the answer',
    'method',
    'collection',
    'status',
)
RPC_CALLS = _histogram(
    'cyborg_rpc_call_duration_seconds',
    'Messages that this process sent to other services; of a call until the answer',
    'service',
    'method',
    'result',
)
RPC_SERVED = _histogram(
    'cyborg_conductor_call_duration_seconds',
    'Messages that conductors have processed',
    'method',
    'result',
)
SERVICE_CALLS = _histogram(
    'cyborg_service_call_duration_seconds',
    'HTTP requests to Placement, Nova and Glance; the status is 0 without an answer',
    'service',
    'method',
    'status',
)
BINDS = _counter(
    'cyborg_binds', 'Binds of accelerator requests that have ended', 'driver', 'result'
)
REFUSED_BINDS = _counter(
    'cyborg_refused_binds', 'Binds that were refused at once, by the name of the error', 'reason'
)
TASKS = _histogram(
    'cyborg_task_duration_seconds',
    'Attempts of hosts to perform a task, as the conductor learns of them',
    'kind',
    'result',
)
NOVA_EVENTS = _counter('cyborg_nova_events', 'Events that were sent to Nova', 'result')
AGENT_TASKS = _histogram(
    'cyborg_agent_task_duration_seconds',
    'Attempts of this host to perform a task',
    'kind',
    'driver',
    'result',
)
AGENT_ROUNDS = _histogram(
    'cyborg_agent_round_duration_seconds',
    'Rounds of discovery, report and publication on this host',
    'result',
)
DRIVER_FAILURES = _counter(
    'cyborg_agent_driver_failures', 'Discoveries that a driver has failed', 'driver'
)

OK, FAILED = 'ok', 'failed'


class Timer:
    """Observes how long a block takes, under the labels that are known at its end."""

    def __init__(self, histogram: prometheus_client.Histogram, *labels: str) -> None:
        self._histogram, self._labels = histogram, labels
        #: the last label; a block that raises and does not set it has failed
        self.result: str | None = None

    def __enter__(self) -> 'Timer':
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        result = self.result or (OK if kind is None else FAILED)
        self._histogram.labels(*self._labels, result).observe(time.perf_counter() - self._began)


def known_method(method: str) -> str:
    """Returns an HTTP method, or ``other`` for what a client has made up."""
    return method if method in METHODS else 'other'


# -- several processes ----------------------------------------------------------------------


def prepare() -> None:
    """Create the directory that the environment names for shared metrics; raises ConfigError if
    this process cannot write there."""
    named = os.environ.get(SHARED)
    if named is None:
        return
    directory = pathlib.Path(named)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.ConfigError(why=f'{SHARED}: {directory}: {error.strerror}.') from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise errors.ConfigError(why=f'{SHARED}: {directory} is not writable.')


def share_between_processes() -> None:
    """Have the workers of a service share their metrics, so that the one that has the port serves
    those of all.

    Must be called before the first metric has a value. Does nothing if the environment names a
    directory: then they are shared already.
    """
    if SHARED in os.environ:
        return
    directory = os.environ[SHARED] = tempfile.mkdtemp(prefix='cyborg-metrics-')
    # which prometheus_client has chosen by the environment when it was imported
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # workers are forks
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)


# -- the port -------------------------------------------------------------------------------


class _Everything(registry.Collector):
    """The metrics of this process, or of all that share theirs, and those of other collectors."""

    def __init__(self, *others: registry.Collector) -> None:
        self._sources: list[Any] = list(others)
        if SHARED in os.environ:
            shared = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
            self._sources.insert(0, shared)
        else:
            self._sources.insert(0, REGISTRY)

    def collect(self) -> Iterator[Any]:
        for source in self._sources:
            yield from source.collect()


class Listener:
    """The port on which a process serves metrics. Without a port it does nothing."""

    def __init__(self, host: str, port: int | None, *collectors: registry.Collector) -> None:
        self._host, self._port, self._collectors = host, port, collectors
        self._stop: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._is_tried = False

    def start(self) -> None:
        """Serve, unless another process of the service has the port. Only the first call counts."""
        with self._lock:
            if self._is_tried or not self._port:
                return
            self._is_tried = True
        served = prometheus_client.CollectorRegistry(auto_describe=False)
        served.register(_Everything(*self._collectors))
        try:
            server, _ = prometheus_client.start_http_server(self._port, self._host, served)
        except OSError as error:
            LOG.log(
                # the process that has it serves the metrics of this one, too
                log.DEBUG if SHARED in os.environ else log.WARNING,
                'Metrics of this process are not served on %s:%s: %s.',
                self._host,
                self._port,
                error.strerror,
            )
            return

        def stop() -> None:
            server.shutdown()
            server.server_close()

        self._stop = stop

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
