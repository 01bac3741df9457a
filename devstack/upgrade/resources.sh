#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Grenade asks for resources that must survive the upgrade: a device profile, and the devices
# that the agent of this host has found.

set -o errexit

source "$GRENADE_DIR/grenaderc"
source "$GRENADE_DIR/functions"
source "$TOP_DIR/openrc" admin admin

CYBORG_PROFILE=grenade-accelerator

# _cyborg_request <method> <path> [<body>] - print the answer; an error is one of this script
function _cyborg_request {
    local url
    url=$(openstack catalog show accelerator -f json | python3 -c \
        'import json, sys
endpoints = json.load(sys.stdin)["endpoints"]
print(next(each["url"] for each in endpoints if each["interface"] == "public"))')
    curl --silent --show-error --fail-with-body --request "$1" "$url$2" \
        --header "X-Auth-Token: $(openstack token issue -f value -c id)" \
        --header "Content-Type: application/json" ${3:+--data "$3"}
}

function create {
    local made
    made=$(_cyborg_request POST /device_profiles \
        "[{\"name\": \"$CYBORG_PROFILE\", \"groups\": [{\"resources:FPGA\": \"1\"}]}]")
    resource_save cyborg profile_uuid \
        "$(echo "$made" | python3 -c 'import json, sys; print(json.load(sys.stdin)["uuid"])')"
}

function verify {
    _cyborg_request GET "/device_profiles/$(resource_get cyborg profile_uuid)" \
        | grep --quiet "$CYBORG_PROFILE"
    # the agent reports again after each start
    _cyborg_request GET /devices | grep --quiet '"uuid"'
}

function verify_noapi {
    # Everything is in the database, which Grenade saves.
    :
}

function destroy {
    _cyborg_request DELETE "/device_profiles/$(resource_get cyborg profile_uuid)"
}

case $1 in
    create | verify | verify_noapi | destroy) "$1" ;;
    force_destroy) destroy || true ;;
    # Grenade has other phases, such as early_create, and stops if one fails.
    *) ;;
esac
