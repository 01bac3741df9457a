# SPDX-License-Identifier: Apache-2.0
"""The drivers for the guest's card, which is QEMU's disk and behaves like a GPU of NVIDIA's."""

from oslo_config import cfg

from cyborg import conf as our_conf
from cyborg.accelerator import driver, pci
from cyborg.accelerator.drivers.nvidia_gpu import NvidiaGpuDriver
from cyborg.accelerator.sysfs import Sysfs
from tests.kernel import laws

VENDOR, DEVICE = '1b36', '0010'


class SharedCardDriver(NvidiaGpuDriver):
    """NVIDIA's driver of ours, for a card that has another id."""

    catalogue = (pci.Model(VENDOR, DEVICE, 'QEMU shared card', 'PGPU'),)


def configure() -> cfg.ConfigOpts:
    """Options by which the card is shared."""
    conf = cfg.ConfigOpts()
    our_conf.register(conf)
    SharedCardDriver.register_options(conf)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    conf.set_override('enabled_vgpu_types', [laws.Machine.kinds[0]], 'gpu_devices')
    return conf


def load(conf: cfg.ConfigOpts, sysfs: Sysfs) -> list[driver.Driver]:
    """What would be enabled on such a host."""
    return [SharedCardDriver(conf, sysfs), *driver.load(['nvme_driver'], conf, sysfs)]
