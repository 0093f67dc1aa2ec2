// SPDX-License-Identifier: Apache-2.0

package image

// debianRecipe is Debian 12, which Kubernetes' node images use too.
func debianRecipe() recipe {
	return recipe{
		suite:    "bookworm",
		packages: installedPackages(),
		masked:   maskedUnits(),
		overlay:  overlayArchive,
		finish:   finishScript,
		cache:    "debs",
	}
}

// basePackages returns the packages that debootstrap installs in addition to the minimal variant:
// enough for apt to install the rest.
func basePackages() []string { return []string{"ca-certificates", "dbus", "systemd", "systemd-sysv"} }

// installedPackages returns the packages of a stock cloud image that a node uses. apt installs
// them, because debootstrap does not resolve the virtual packages that cloud-init depends on.
func installedPackages() []string {
	return []string{
		"ca-certificates", "cloud-init", "conntrack", "curl", "dbus", "e2fsprogs", "ethtool",
		"iproute2", "iptables", "kmod", "less", "mount", "nftables", "openssh-server", "openssl",
		"procps", "python3", "socat", "sudo", "systemd", "systemd-sysv", "util-linux",
	}
}

// maskedUnits returns the systemd units of Debian that are useless in a machine made of namespaces. Each
// costs boot time on every machine, or accesses something that belongs to the host (devices, the
// clock, kernel settings). cloud-init's local stage would wait for DHCP, but a machine has its
// address before it boots. cloud-init's config stage has nothing to do (see overlay.txtar) and
// costs a start of Python.
func maskedUnits() []string {
	return []string{
		"apt-daily-upgrade.service", "apt-daily-upgrade.timer", "apt-daily.service",
		"apt-daily.timer", "cloud-config.service", "cloud-init-hotplugd.socket",
		"cloud-init-local.service", "console-getty.service", "container-getty@.service",
		"dev-hugepages.mount", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
		"fstrim.timer", "getty-static.service", "getty.target", "getty@.service", "hwclock.service",
		"kmod-static-nodes.service", "ldconfig.service", "modprobe@.service", "motd-news.timer",
		"networking.service", "proc-sys-fs-binfmt_misc.automount", "serial-getty@.service",
		"sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount",
		"sys-kernel-tracing.mount", "systemd-ask-password-console.path",
		"systemd-ask-password-wall.path", "systemd-binfmt.service", "systemd-firstboot.service",
		"systemd-hwdb-update.service", "systemd-modules-load.service",
		"systemd-networkd-wait-online.service", "systemd-networkd.service",
		"systemd-pstore.service", "systemd-random-seed.service", "systemd-remount-fs.service",
		"systemd-timesyncd.service", "systemd-tmpfiles-clean.timer", "systemd-udev-settle.service",
		"systemd-udev-trigger.service", "systemd-udevd-control.socket",
		"systemd-udevd-kernel.socket", "systemd-udevd.service",
		"systemd-update-utmp-runlevel.service", "systemd-update-utmp.service",
	}
}
