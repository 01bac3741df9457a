# SPDX-License-Identifier: Apache-2.0
"""Life-cycle management of hardware accelerators for OpenStack."""

import warnings

# futurist looks at eventlet where it is installed, which warns; we never use it.
warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')

from oslo_service import backend  # noqa: E402

# Threads, not green ones: oslo libraries ask once, so this comes before any of them loads. A
# process that is not ours may have chosen already.
if backend.get_backend_type() is None:
    backend.init_backend(backend.BackendType.THREADING)
