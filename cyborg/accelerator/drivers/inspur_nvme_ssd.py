# SPDX-License-Identifier: Apache-2.0
"""NVMe disks of Inspur, for hosts on which disks of other makers are not given out."""

from cyborg.accelerator import nvme


class InspurNvmeSsdDriver(nvme.Driver):
    name = 'inspur_nvme_ssd_driver'
    catalogue = (
        nvme.model('1bd4', 'Inspur', *(f'{number:04x}' for number in range(0x1000, 0x1010))),
    )
