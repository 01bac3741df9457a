# SPDX-License-Identifier: Apache-2.0
"""How NVIDIA GPUs are offered that are given out whole."""

from oslo_config import cfg

GROUP = cfg.OptGroup('nvidia_gpu_driver', title='How whole NVIDIA GPUs are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='PGPU', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them. For virtual GPUs see '
                    '[gpu_devices] vgpu_resource_class.'),
]
