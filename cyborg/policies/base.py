# SPDX-License-Identifier: Apache-2.0
"""The base rules, which the other rules and policy.yaml refer to."""

from oslo_policy import policy

ADMIN = 'rule:admin_api'
MEMBER_OR_SERVICE = 'rule:project_member_or_service'
READER_OR_ADMIN = 'rule:project_reader_or_admin'
MANAGER_OR_ADMIN = 'rule:project_manager_or_admin'

OWN_PROJECT = 'project_id:%(project_id)s'

#: name: (check, meaning)
NAMED = {
    'admin_api': ('role:admin', 'Administrators of the cloud.'),
    'project_admin_api': (f'role:admin and {OWN_PROJECT}', 'Administrators, in a project.'),
    'project_manager_api': (f'role:manager and {OWN_PROJECT}', 'Managers of a project.'),
    'project_member_api': (f'role:member and {OWN_PROJECT}', 'Members of a project.'),
    'project_reader_api': (f'role:reader and {OWN_PROJECT}', 'Readers of a project.'),
    'service_api': ('role:service', 'Other services, such as Nova.'),
    'project_manager_or_admin': (
        'rule:project_manager_api or rule:admin_api',
        'Managers of a project, and administrators.',
    ),
    'project_member_or_admin': (
        'rule:project_member_api or rule:admin_api',
        'Members of a project, and administrators.',
    ),
    'project_reader_or_admin': (
        'rule:project_reader_api or rule:admin_api',
        'Readers of a project, and administrators.',
    ),
    'project_member_or_service': (
        'rule:project_member_api or rule:service_api',
        'Members of a project, and services.',
    ),
}

#: name: (check, what to use instead); kept for policy files that refer to them
DEPRECATED = {
    'public_api': ('!', 'nothing: what is public asks for no policy'),
    'allow': ('@', '"@"'),
    'deny': ('!', '"!"'),
    'default': ('rule:admin_api', 'admin_api'),
    'is_admin': ('rule:admin_api', 'admin_api'),
    'admin_or_owner': (f'rule:admin_api or {OWN_PROJECT}', 'project_member_or_admin'),
    'admin_or_user': ('rule:admin_api or user_id:%(user_id)s', 'project_member_or_admin'),
}

RULES = [
    *(
        policy.RuleDefault(name, check, description=meaning)
        for name, (check, meaning) in NAMED.items()
    ),
    *(
        policy.RuleDefault(
            name,
            check,
            deprecated_for_removal=True,
            deprecated_since='2026.2',
            deprecated_reason=f'Use {instead} instead',
            description='For policy files of older releases.',
        )
        for name, (check, instead) in DEPRECATED.items()
    ),
]


def rule(
    noun: str, verb: str, check: str, description: str, *operations: str
) -> policy.DocumentedRuleDefault:
    """A rule of the API; operations read like ``GET /v2/devices``."""
    return policy.DocumentedRuleDefault(
        name=f'cyborg:{noun}:{verb}',
        check_str=check,
        description=description,
        operations=[
            {'method': method, 'path': path}
            for method, path in (text.split(maxsplit=1) for text in operations)
        ],
        scope_types=['project'],
    )
