# Runs inside the new root of Ubuntu, with /proc mounted and the package cache bound, in a mount namespace of its own.
# $1 is "install" or "trim"; the packages and tasks follow.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
case $1 in
install)
	shift
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # no daemon starts in a chroot
	chmod 755 /usr/sbin/policy-rc.d
	# Published images have the updates of the day on which they are built.
	mirror=$(sed -n 's/^deb \([^ ]*\) noble main$/\1/p' /etc/apt/sources.list)
	for suite in noble-updates noble-security; do
		echo "deb $mirror $suite main" >>/etc/apt/sources.list
	done
	apt-get -q update
	apt-get -q -y -o APT::Keep-Downloaded-Packages=true dist-upgrade
	apt-get -q -y -o APT::Keep-Downloaded-Packages=true --no-install-recommends install "$@"
	rm -f /usr/sbin/policy-rc.d
	;;
trim)
	rm -rf /var/lib/apt/lists/* /tmp/* /usr/share/doc/* /usr/share/man/* /usr/share/info/*
	find /var/log -type f -delete
	rm -f /etc/hostname /etc/hosts /etc/ssh/ssh_host_*_key* # of each machine: the region and cloud-init write them
	: >/etc/machine-id
	chmod 755 /usr/local/sbin/modprobe /usr/local/sbin/region-resolver
	# As in the published image: groups that users may be added to, and systemd-networkd.
	for group in admin netdev lxd; do
		getent group $group >/dev/null || groupadd --system $group
	done
	systemctl enable -q systemd-networkd.service
	# cloud-init asks IMDSv2 for a token only where it knows itself on AWS, by DMI or by this file; sysfs takes neither.
	ec2=/usr/lib/python3/dist-packages/cloudinit/sources/DataSourceEc2.py
	sed -i 's|/sys/hypervisor/uuid|/etc/cloud/hypervisor-uuid|' $ec2
	grep -q /etc/cloud/hypervisor-uuid $ec2
	# Settings of the whole kernel would be written over the host's. Those of a network namespace are the machine's own.
	find /usr/lib/sysctl.d /etc/sysctl.d /etc/sysctl.conf -type f -exec sed -i '/^-\{0,1\}net\.ipv[46]\./!d' {} +
	;;
esac
