# SPDX-License-Identifier: Apache-2.0
"""cyborg-standalone: a whole Cyborg in one process, on simulated hardware.

``demo`` tells a story and ends; ``run`` serves until it is told to stop.
"""

import argparse
import contextlib
import pathlib
import signal
import sys
import tempfile
from collections.abc import Iterator

from cyborg.cmd import api, demo, startup
from cyborg.sim import Host
from cyborg.sim import nova as sim_nova
from cyborg.standalone import Standalone, write_configuration

HOSTNAME = 'compute1'
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
    auth_type: none
    accelerator_endpoint_override: {url}/v2
    accelerator_api_version: '2'
"""
SERVING = """\
Cyborg serves on {url} with the simulated host {host}; its data are in {directory}.

  export OS_CLIENT_CONFIG_FILE={directory}/clouds.yaml OS_CLOUD=cyborg-standalone
  openstack accelerator device list
  openstack accelerator device profile list
  curl {url}/v2/deployables

Stop it with Ctrl-C; start it again and everything is still there.
"""


class SimulatedHost:
    """A host with the demo's cards, known to Cyborg by a name."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.name = HOSTNAME
        self.drivers = DRIVERS
        self.cards = Host.described(directory)
        self.sysfs = self.cards.sysfs
        self.monitor = self.cards.monitor


@contextlib.contextmanager
def whole(directory: pathlib.Path, port: int,
          more: str = '') -> Iterator[tuple[Standalone, SimulatedHost, sim_nova.Nova]]:
    """A running Cyborg, its host and its Nova."""
    directory.mkdir(parents=True, exist_ok=True)
    nova = sim_nova.Nova()
    nova.start()
    conf = startup.configure(
        ['--config-file', str(write_configuration(directory, nova.url, port,
                                                  more=SETTINGS + more))],
        default_config_files=[])
    standalone = Standalone(conf, directory)
    host = SimulatedHost(directory / 'sys')
    sim_nova.make_compute_node(standalone.placement, host.name)
    standalone.start()
    standalone.add_host(host)
    try:
        yield standalone, host, nova
    finally:
        standalone.stop()
        nova.stop()


def run(directory: pathlib.Path, port: int) -> int:
    """Serve until a signal comes."""
    # blocked in all threads, so that the one which waits for them is sure to get them
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    with whole(directory, port) as (standalone, host, _):
        server = api.Server(standalone.api, '127.0.0.1', port,
                            standalone.conf.api.api_workers)
        server.start()
        startup.settle()
        (directory / 'clouds.yaml').write_text(CLOUDS.format(url=server.url))
        print(SERVING.format(url=server.url, host=host.name, directory=directory), flush=True)
        signal.sigwait(STOPPING)
        server.stop()
    return 0


def tell(verbose: bool) -> int:
    """Tell the story; 1 if a step did not hold."""
    with tempfile.TemporaryDirectory(prefix='cyborg-demo-') as name:
        directory = pathlib.Path(name)
        quiet = '' if verbose else f'[DEFAULT]\nlog_file = {directory}/cyborg.log\n'
        with whole(directory, port=0, more=quiet) as (standalone, host, nova):
            return demo.Story(standalone, host, nova).tell()


def main() -> None:
    parser = argparse.ArgumentParser(prog='cyborg-standalone', description=__doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    serve = commands.add_parser('run', help='serve on 127.0.0.1 until Ctrl-C')
    serve.add_argument('--state-dir', type=pathlib.Path, default='cyborg-standalone',
                       help='where everything is kept; default: %(default)s')
    serve.add_argument('--port', type=int, default=6666, help='default: %(default)s')
    story = commands.add_parser('demo', help='follow one request from the card to the release')
    story.add_argument('--verbose', action='store_true', help='show the log too')
    options = parser.parse_args()
    with startup.one_sentence():
        if options.command == 'run':
            sys.exit(run(options.state_dir.absolute(), options.port))
        sys.exit(tell(options.verbose))
