# SPDX-License-Identifier: Apache-2.0
"""cyborg-standalone: all services of Cyborg in one process, on simulated hardware.

``demo`` follows one request through all services and exits; ``run`` serves until Ctrl-C.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence

import stevedore

from cyborg import errors
from cyborg.accelerator import driver
from cyborg.api import microversions
from cyborg.cmd import api, demo, startup
from cyborg.sim import Host, description
from cyborg.sim import nova as sim_nova
from cyborg.standalone import PLACEMENT, Standalone, write_configuration
from cyborg.workbench import state_directory
from cyborg.workbench.compute import Compute
from cyborg.workbench.control import Control
from cyborg.workbench.identity import REGION, Identity
from cyborg.workbench.images import Images
from cyborg.workbench.servers import Servers
from cyborg.workbench.state_directory import owned
from cyborg.workbench.web import Site

HOSTNAME = 'compute1'
MOST_PORTS = 65535
#: of the server; some wait for hosts while others answer the page
THREADS = 16
#: seconds for which it waits until the first cards are offered, before it says that it serves
PATIENCE = 30
STOPPING = {signal.SIGINT, signal.SIGTERM}
DRIVERS = ('nvidia_gpu_driver', 'intel_fpga_driver', 'intel_qat_driver', 'time_sync_driver')
SETTINGS = """\
[gpu_devices]
enabled_vgpu_types = nvidia-231, nvidia-469
[vgpu_nvidia-231]
device_addresses = 0000:3b:00.0, 0000:d8:00.0
[vgpu_nvidia-469]
device_addresses = 0000:af:00.0
"""
CLOUDS = """\
clouds:
  cyborg-standalone:
    auth:
      auth_url: {url}/identity/v3
      username: admin
      password: any
      project_name: demo
      user_domain_id: default
      project_domain_id: default
    region_name: {region}
    identity_api_version: '3'
    accelerator_api_version: '2'
    accelerator_default_microversion: '{version}'
    compute_default_microversion: '2.100'
  # for python-cyborgclient, which accepts no default microversion
  cyborg-standalone-cyborgclient:
    auth_type: none
    accelerator_endpoint_override: {url}/v2
    accelerator_api_version: '2'
"""
SERVING = """\
Cyborg serves on {url} with {hosts}; its data is in {directory}.
Open {url} in a browser, or use another shell:

  export OS_CLIENT_CONFIG_FILE={directory}/clouds.yaml OS_CLOUD=cyborg-standalone
  openstack accelerator device list
  openstack accelerator device profile list
  curl {url}/v2/deployables
  cyborg-sim fault {card} --state-dir {directory}

Stop it with Ctrl-C. The data remains for the next start.
"""


class SimulatedHost:
    """A simulated host and the drivers of its agent."""

    def __init__(
        self,
        directory: pathlib.Path,
        name: str = HOSTNAME,
        drivers: Sequence[str] = DRIVERS,
        described: pathlib.Path | None = None,
    ) -> None:
        """``described`` is the file that describes its cards; None: those of the demo."""
        self.name = name
        self.drivers = drivers
        self.cards = Host.described(directory, described)
        self.sysfs = self.cards.sysfs
        self.monitor = self.cards.monitor


@contextlib.contextmanager
def run_standalone(
    directory: pathlib.Path, more: str = ''
) -> Iterator[tuple[Standalone, SimulatedHost, sim_nova.Nova]]:
    """Run all services without a port; yields them, the simulated host and the simulated Nova."""
    nova = sim_nova.Nova()
    host = SimulatedHost(directory / 'sys')
    with _served(nova), _running(directory, nova.url, [host], SETTINGS + more) as standalone:
        yield standalone, host, nova


@contextlib.contextmanager
def _served(*servers: startup.Service) -> Iterator[None]:
    for each in servers:
        each.start()
    try:
        yield
    finally:
        for each in servers:
            each.stop()


@contextlib.contextmanager
def _running(
    directory: pathlib.Path,
    nova: str,
    hosts: Sequence[SimulatedHost],
    more: str,
    port: int = 0,
    glance: str | None = None,
    placement: str = PLACEMENT,
    files: Sequence[pathlib.Path] = (),
) -> Iterator[Standalone]:
    """Run all services; yields them when the agents of the hosts have started."""
    written = write_configuration(
        directory, nova, port, glance=glance, placement=placement, more=more
    )
    conf = startup.configure(
        [word for file in (written, *files) for word in ('--config-file', str(file))],
        default_config_files=[],
    )
    standalone = Standalone(conf, directory, placement=placement)
    standalone.start()
    try:
        for host in hosts:
            sim_nova.make_compute_node(standalone.placement, host.name)
            standalone.add_host(host)
        yield standalone
    finally:
        standalone.stop()


def require_free(port: int) -> None:
    """Raise ConfigError if another process serves on a port."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(('127.0.0.1', port))
        except OSError as error:
            raise errors.ConfigError(
                why=f'Port {port} cannot be used: {error.strerror}. Choose another --port; 0 takes '
                'a free one.'
            ) from error


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a user says of a standalone that serves."""

    directory: pathlib.Path
    port: int
    #: the files that describe the hosts; none: one host with the cards of the demo
    descriptions: Sequence[pathlib.Path] = ()
    drivers: Sequence[str] = DRIVERS
    #: files with options of drivers
    config_files: Sequence[pathlib.Path] = ()

    def hosts(self) -> list[SimulatedHost]:
        """Build the simulated hosts: compute1, compute2, ..."""
        return [
            SimulatedHost(self.directory / 'hosts' / name, name, self.drivers, described)
            for number, described in enumerate(self.descriptions or (None,), 1)
            if (name := f'compute{number}')
        ]


def run(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM."""
    for path in settings.descriptions:
        description.load(path)  # a mistake is told before anything is written
    require_drivers(settings.drivers)
    for path in settings.config_files:
        if not path.is_file():
            raise errors.ConfigError(why=f'There is no file {path}.')
    require_free(settings.port)
    with owned(settings.directory):
        return _serve(settings)


def require_drivers(names: Sequence[str]) -> None:
    """Raise ConfigError if a driver is not installed."""
    installed = stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names()
    if unknown := [name for name in names if name not in installed]:
        raise errors.ConfigError(
            why=f'There is no driver {unknown[0]}. There are {", ".join(sorted(installed))}.'
        )


def _serve(settings: Settings) -> int:
    # blocked in all threads, so that sigwait() below receives them
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    with serving(settings) as (url, hosts):
        startup.settle_memory()
        print(_greeting(url, settings.directory, hosts), flush=True)
        signal.sigwait(STOPPING)
    return 0


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[tuple[str, list[SimulatedHost]]]:
    """Run all services, the workbench and the stand-ins; yields the URL and the hosts."""
    directory, site = settings.directory, Site()
    server = api.Server(site, '127.0.0.1', settings.port, THREADS)
    nova, glance = Compute(), Images(directory / 'images')
    placement = f'{server.url}/placement'
    endpoints = {
        'accelerator': f'{server.url}/v2',
        'placement': placement,
        'compute': nova.url,
        'image': glance.url,
    }
    hosts = settings.hosts()
    with _served(nova, glance):
        with _running(
            directory,
            nova.url,
            hosts,
            '' if settings.descriptions else SETTINGS,
            server.port,
            glance.url,
            placement,
            settings.config_files,
        ) as standalone:
            servers = nova.servers = Servers(
                standalone.api, standalone.placement, nova, directory / 'servers.json'
            )
            site.open(
                standalone.api,
                Control(standalone, {host.name: host for host in hosts}, servers),
                {
                    'placement': standalone.placement_app,
                    'identity': Identity(f'{server.url}/identity', endpoints),
                },
            )
            for agent in standalone.agents.values():
                agent.inventory.is_ready.wait(PATIENCE)
            (directory / 'clouds.yaml').write_text(
                CLOUDS.format(url=server.url, region=REGION, version=microversions.HIGHEST)
            )
            with _served(server):  # stopped first: it answers what it has accepted
                state_directory.announce(directory, server.url)
                yield server.url, hosts


def _greeting(url: str, directory: pathlib.Path, hosts: Sequence[SimulatedHost]) -> str:
    names = ', '.join(host.name for host in hosts)
    return SERVING.format(
        url=url,
        directory=directory,
        hosts=f'the simulated host{"s" * (len(hosts) > 1)} {names}',
        card=next(iter(hosts[0].cards.slots), 'ADDRESS'),
    )


def run_demo(verbose: bool) -> int:
    """Run the demo; returns 1 if a step fails."""
    with tempfile.TemporaryDirectory(prefix='cyborg-demo-') as name:
        directory = pathlib.Path(name)
        quiet = '' if verbose else f'[DEFAULT]\nlog_file = {directory}/cyborg.log\n'
        with run_standalone(directory, quiet) as (standalone, host, nova):
            return demo.Demo(standalone, host, nova).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog='cyborg-standalone', description=__doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    serve = commands.add_parser('run', help='serve on 127.0.0.1 until Ctrl-C')
    serve.add_argument(
        '--state-dir',
        type=pathlib.Path,
        default='cyborg-standalone',
        help='directory of all data; default: %(default)s',
    )
    serve.add_argument(
        '--port', type=_port, default=6666, help='0: any free one; default: %(default)s'
    )
    serve.add_argument(
        '--description',
        metavar='FILE',
        type=pathlib.Path,
        action='append',
        default=[],
        help='the cards of a host, as for cyborg-sim build; each further one is a further host; '
        'default: one host with the cards of the demo',
    )
    serve.add_argument(
        '--drivers',
        metavar='NAME',
        nargs='+',
        default=DRIVERS,
        help=f'drivers of all hosts; default: {" ".join(DRIVERS)}',
    )
    serve.add_argument(
        '--config-file',
        metavar='FILE',
        type=pathlib.Path,
        action='append',
        default=[],
        help='options of drivers; may be repeated',
    )
    demonstration = commands.add_parser(
        'demo', help='follow one accelerator request from discovery to release'
    )
    demonstration.add_argument('--verbose', action='store_true', help='show the log too')
    options = parser.parse_args()
    with startup.exit_with_message():
        if options.command == 'run':
            sys.exit(
                run(
                    Settings(
                        options.state_dir.absolute(),
                        options.port,
                        options.description,
                        options.drivers,
                        options.config_file,
                    )
                )
            )
        try:
            sys.exit(run_demo(options.verbose))
        except KeyboardInterrupt:
            print('\nThe demo was interrupted; nothing of it is left.')
            sys.exit(128 + signal.SIGINT)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_PORTS:
        raise argparse.ArgumentTypeError(f'{text!r} is not a port: name one from 0 to {MOST_PORTS}')
    return int(text)
