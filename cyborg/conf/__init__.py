# SPDX-License-Identifier: Apache-2.0
"""Every option, one module per group; ``register`` is all that start-up code calls."""

import copy

from oslo_config import cfg

from cyborg.conf import (
    agent,
    amd_gpu_driver,
    api,
    cleaning,
    conductor,
    default,
    fake_driver,
    fpga,
    glance,
    gpu_devices,
    health,
    huawei_ascend_driver,
    inspur_fpga_driver,
    inspur_nvme_ssd_driver,
    intel_dsa_driver,
    intel_fpga_driver,
    intel_gpu_driver,
    intel_nic_driver,
    intel_qat_driver,
    nic_devices,
    nova,
    nvidia_gpu_driver,
    nvme_driver,
    nvmf_spdk_driver,
    pci,
    pci_driver,
    placement,
    time_sync_driver,
    xilinx_fpga_driver,
)

#: Each has ``GROUP`` (None for DEFAULT) and ``OPTS``.
GROUPS = (default, api, agent, conductor, placement, nova, glance, health, cleaning,
          gpu_devices, nic_devices, fpga, pci, amd_gpu_driver, fake_driver, huawei_ascend_driver,
          inspur_fpga_driver, inspur_nvme_ssd_driver, intel_dsa_driver, intel_fpga_driver,
          intel_gpu_driver, intel_nic_driver, intel_qat_driver, nvidia_gpu_driver, nvme_driver,
          nvmf_spdk_driver, pci_driver, time_sync_driver, xilinx_fpga_driver)


def register(conf: cfg.ConfigOpts) -> None:
    """Make all options of ours known."""
    for module in GROUPS:
        # a copy: oslo.config keeps overrides in the group, and two ConfigOpts would share them
        conf.register_opts(module.OPTS, group=copy.deepcopy(module.GROUP))
