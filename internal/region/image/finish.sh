# Runs inside the new root, with /proc mounted and the package cache bound, in a mount namespace of its own.
# $1 is "install" or "trim"; the packages follow.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
case $1 in
install)
	shift
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # no daemon starts in a chroot
	chmod 755 /usr/sbin/policy-rc.d
	apt-get -q -y -f install
	apt-get -q -y -o APT::Keep-Downloaded-Packages=true --no-install-recommends install "$@"
	rm -f /usr/sbin/policy-rc.d
	;;
trim)
	rm -rf /var/lib/apt/lists/* /tmp/* /usr/share/doc/* /usr/share/man/* /usr/share/info/* /var/cache/debconf/*
	find /usr/share/locale /usr/share/i18n -mindepth 1 -delete 2>/dev/null || true
	find /var/log -type f -delete
	rm -f /etc/hostname /etc/hosts /etc/ssh/ssh_host_*_key* /var/lib/dbus/machine-id # of each machine
	: >/etc/machine-id
	chmod 755 /usr/local/sbin/modprobe /usr/local/sbin/region-resolver
	# As in the published image: its services of the network, the resolvers of the network without a stub, and its sshd.
	systemctl enable -q systemd-networkd.service systemd-resolved.service
	ln -sfn /run/systemd/resolve/resolv.conf /etc/resolv.conf
	sed -i 's/^#PasswordAuthentication yes/PasswordAuthentication no/' /etc/ssh/sshd_config
	echo 'ClientAliveInterval 120' >>/etc/ssh/sshd_config
	# cloud-init asks IMDSv2 for a token only where it knows itself on AWS, by DMI or by this file; sysfs takes neither.
	ec2=/usr/lib/python3/dist-packages/cloudinit/sources/DataSourceEc2.py
	sed -i 's|/sys/hypervisor/uuid|/etc/cloud/hypervisor-uuid|' $ec2
	grep -q /etc/cloud/hypervisor-uuid $ec2
	python3 -m compileall -q $ec2 # once, instead of on every first boot
	# Settings of the whole kernel would be written over the host's. Those of a network namespace are the machine's own.
	find /usr/lib/sysctl.d /etc/sysctl.d /etc/sysctl.conf -type f -exec sed -i '/^-\{0,1\}net\.ipv[46]\./!d' {} +
	;;
esac
