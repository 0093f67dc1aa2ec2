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
	rm -rf /var/lib/apt/lists/* /var/log/* /tmp/* /usr/share/doc/* /usr/share/man/* /usr/share/info/* /var/cache/debconf/*
	find /usr/share/locale /usr/share/i18n -mindepth 1 -delete 2>/dev/null || true
	rm -f /etc/machine-id /var/lib/dbus/machine-id /etc/hostname /etc/resolv.conf /etc/hosts
	mkdir -p /var/log/journal /var/lib/containerd /var/lib/kubelet /var/lib/slipway /opt/cni/bin
	rmdir /var/log/journal
	touch /etc/machine-id
	# The user of Debian's cloud images, without a password. Its key comes from the metadata service at each login, where
	# cloud-init would write it at each boot. sshd starts when somebody connects, and no two machines have the same host key.
	useradd --create-home --shell /bin/bash --password '*' admin
	printf 'admin ALL=(ALL) NOPASSWD:ALL\n' >/etc/sudoers.d/90-admin
	chmod 440 /etc/sudoers.d/90-admin
	chmod 755 /usr/local/sbin/instance-public-keys /usr/local/sbin/modprobe
	rm -f /etc/ssh/ssh_host_*_key* /etc/systemd/system/multi-user.target.wants/ssh.service /etc/systemd/system/sshd.service
	mkdir -p /etc/systemd/system/sockets.target.wants
	ln -sf /lib/systemd/system/ssh.socket /etc/systemd/system/sockets.target.wants/ssh.socket
	# logind starts when somebody asks for it over D-Bus (the kubelet's graceful shutdown does), not at every boot.
	rm -f /usr/lib/systemd/system/multi-user.target.wants/systemd-logind.service
	# cloud-init asks IMDSv2 for a token only where it knows itself on AWS, by DMI or by this file; sysfs takes neither.
	ec2=/usr/lib/python3/dist-packages/cloudinit/sources/DataSourceEc2.py
	sed -i 's|/sys/hypervisor/uuid|/etc/cloud/hypervisor-uuid|' $ec2
	grep -q /etc/cloud/hypervisor-uuid $ec2
	# Kernel settings of the distribution would be written over the host's; what a node asks for itself still is.
	rm -f /usr/lib/sysctl.d/*.conf /etc/sysctl.d/*.conf
	# The path of Python's files is fixed from here on: compile once instead of on every first boot.
	python3 -m compileall -q -j 2 /usr/lib/python3 /usr/lib/python3.11 >/dev/null 2>&1 || true
	systemctl set-default multi-user.target >/dev/null 2>&1 || ln -sf /lib/systemd/system/multi-user.target /etc/systemd/system/default.target
	;;
esac
