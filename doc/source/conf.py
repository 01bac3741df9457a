# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds these pages: `make docs`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / '_ext'))

project = 'Cyborg'
copyright = 'Cyborg contributors'

extensions = [
    'api_ref',
    'arq_states',
    'openstackdocstheme',
    'oslo_config.sphinxconfiggen',
    'oslo_config.sphinxext',
    'oslo_policy.sphinxext',
    'oslo_policy.sphinxpolicygen',
    'reno.sphinxext',
]

# Both samples are made at build time, for the reader to download.
config_generator_config_file = [
    ('../../tools/config/cyborg-config-generator.conf', '_static/cyborg'),
]
policy_generator_config_file = [
    ('../../tools/config/cyborg-policy-generator.conf', '_static/cyborg'),
]

html_theme = 'openstackdocs'
html_static_path = ['_static']
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_pdf_link = False

master_doc = 'index'
pygments_style = 'native'
nitpicky = False
