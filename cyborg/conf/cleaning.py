# SPDX-License-Identifier: Apache-2.0
"""How devices are cleaned between two tenants."""

from oslo_config import cfg, types

LEVELS = ('none', 'reset', 'full')

GROUP = cfg.OptGroup('cleaning', title='How devices are cleaned between two tenants')
OPTS = [
    cfg.StrOpt(
        'level',
        default='none',
        choices=LEVELS,
        help='How a device is cleaned after a request, before the next request gets it. none: '
        'Cyborg does not clean it; libvirt resets PCI functions in managed mode, which Nova '
        'uses, and vGPUs are removed in any case. reset: the function is reset and checked. '
        'full: data is erased, too: disks are formatted, regions of FPGAs are blanked. The '
        'scripts of the operator run at reset and full. accel:cleaning in a device profile '
        'overrides this option.',
    ),
    cfg.BoolOpt(
        'required',
        default=True,
        help='Quarantine a device that could not be cleaned. If this is false, failed steps are '
        'recorded and the device is offered again. accel:cleaning_required in a device profile '
        'overrides this option.',
    ),
    cfg.Opt(
        'driver_levels',
        type=types.Dict(value_type=types.String(choices=LEVELS)),
        default={},
        sample_default='nvme_driver:full,intel_qat_driver:reset',
        help='Levels by driver, which override level for the devices of these drivers.',
    ),
    cfg.Opt(
        'driver_required',
        type=types.Dict(value_type=types.Boolean()),
        default={},
        sample_default='intel_qat_driver:false',
        help='Values by driver, which override required for the devices of these drivers.',
    ),
    cfg.StrOpt(
        'scripts_directory',
        default='/etc/cyborg/clean.d',
        help='Directory of the scripts that run after the cleaning steps of the driver: '
        '<driver>/NN-<name>, in the order of their names. They must belong to root or to the '
        'user of the agent, and must not be writable by other users.',
    ),
    cfg.IntOpt(
        'script_timeout',
        default=300,
        min=1,
        help='Seconds after which a script and the processes that it started are killed.',
    ),
    cfg.IntOpt(
        'step_timeout',
        default=3600,
        min=1,
        help='Seconds after which a cleaning step of a driver counts as hung. Erasing a large disk '
        'may take long.',
    ),
]
