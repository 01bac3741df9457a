# SPDX-License-Identifier: Apache-2.0
"""A bare Pecan WSGI application, which measures the cost of HTTP alone."""

import pecan

#: about as long as the representation of a request
SHOWN = {
    'arqs': [
        {
            'uuid': '00000000-0000-4000-8000-000000000000',
            'state': 'Bound',
            'device_profile_name': 'bench',
            'device_profile_group_id': 0,
            'hostname': 'compute1',
            'device_rp_uuid': '00000000-0000-4000-8000-000000000001',
            'instance_uuid': '00000000-0000-4000-8000-000000000002',
            'attach_handle_type': 'PCI',
            'attach_handle_info': {'domain': '0000', 'bus': '0c', 'device': '0', 'function': '1'},
            'created_at': '2026-01-01T00:00:00+00:00',
            'updated_at': None,
        }
    ]
}


class Root:
    @pecan.expose('json')
    def index(self) -> dict[str, object]:
        return SHOWN


application = pecan.Pecan(Root())
