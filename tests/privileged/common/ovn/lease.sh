#!/bin/sh
# What udhcpc calls when something happens: takes the lease over, and tells it.
# shellcheck disable=SC2154
case $1 in
bound)
    ip addr add "$ip/$mask" dev "$interface"
    echo "$ip/$mask by $serverid, $lease s, dns $dns"
    ;;
esac
