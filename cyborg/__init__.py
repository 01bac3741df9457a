# SPDX-License-Identifier: Apache-2.0
"""Life-cycle management of hardware accelerators for OpenStack."""

import sys

from oslo_service import backend

# Use native threads. oslo libraries read the backend when they are imported, so it is set before.
# A process that only imports Cyborg may have set it already.
if backend.get_backend_type() is None:
    # With threads nobody uses eventlet, but several libraries import it where it is installed,
    # which takes 20 MB. None makes these imports fail.
    sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
    backend.init_backend(backend.BackendType.THREADING)
