# SPDX-License-Identifier: Apache-2.0
"""How devices are cleaned between two tenants."""

from oslo_config import cfg, types

LEVELS = ('none', 'reset', 'full')

GROUP = cfg.OptGroup('cleaning', title='How devices are cleaned between two tenants')
OPTS = [
    cfg.StrOpt(
        'level', default='none', choices=LEVELS,
        help='How thoroughly a device is cleaned after a request, before it is given to another. '
             'none: not by Cyborg; libvirt resets PCI functions itself in managed mode, which '
             'Nova uses, and vGPUs are removed in any case. reset: the function is reset and '
             'looked after. full: data is erased, too: disks are formatted, regions of FPGAs are '
             'blanked. The scripts of the operator are run at reset and full. A device profile '
             'may say otherwise with accel:cleaning.'),
    cfg.BoolOpt(
        'required', default=True,
        help='Whether a device that could not be cleaned is kept from other tenants. If not, '
             'steps that fail are noted and the device is given out. A device profile may say '
             'otherwise with accel:cleaning_required.'),
    cfg.Opt(
        'driver_levels', type=types.Dict(value_type=types.String(choices=LEVELS)), default={},
        sample_default='nvme_driver:full,intel_qat_driver:reset',
        help='The level for the devices of some drivers, by the name of the driver, in place of '
             'level.'),
    cfg.Opt(
        'driver_required', type=types.Dict(value_type=types.Boolean()), default={},
        sample_default='intel_qat_driver:false',
        help='Whether cleaning is required for the devices of some drivers, in place of '
             'required.'),
    cfg.StrOpt(
        'scripts_directory', default='/etc/cyborg/clean.d',
        help='Directory of the scripts that clean devices after the steps of their driver: '
             '<driver>/NN-<name>, in the order of their names. They must belong to root or to '
             'the user of the agent, and nobody else may be able to write them.'),
    cfg.IntOpt('script_timeout', default=300, min=1,
               help='Seconds after which a script is killed with all that it started.'),
    cfg.IntOpt(
        'step_timeout', default=3600, min=1,
        help='Seconds after which a step of a driver counts as hung. To erase a large disk may '
             'take long.'),
    cfg.StrOpt(
        'nvme_erase', default='format',
        choices=[('format', 'Erase the user data (nvme format --ses=1).'),
                 ('format-crypto', 'Change the key of the disk (nvme format --ses=2).'),
                 ('sanitize-block', 'Erase all blocks, spare ones included.'),
                 ('sanitize-overwrite', 'Overwrite all blocks; slow.'),
                 ('sanitize-crypto', 'Change all keys of the disk.')],
        help='How NVMe disks are erased at the level full. A disk that goes to guests by its '
             'virtual functions can only be formatted: sanitize concerns the whole disk.'),
]
