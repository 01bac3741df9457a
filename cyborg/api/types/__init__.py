# SPDX-License-Identifier: Apache-2.0
"""The documents that the API takes and shows, as WSME types: one module per noun.

A class is the only declaration of its document. ``validation`` checks what a client sends with
the JSON Schema that ``json_schema`` derives from it, ``rendering`` shows objects as it says, and
``cyborg.api.openapi`` and the API reference describe it.
"""
