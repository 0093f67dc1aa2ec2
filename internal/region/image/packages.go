// SPDX-License-Identifier: Apache-2.0

package image

import "slices"

// debianRecipe is Debian 12, with the packages of the image that Debian publishes for EC2.
func debianRecipe() recipe {
	return recipe{
		suite:    "bookworm",
		packages: debianPackages(),
		masked:   maskedDebianUnits(),
		overlay:  overlayArchive,
		finish:   finishScript,
		cache:    "debs",
	}
}

// basePackages returns the packages that debootstrap installs in addition to the minimal variant:
// enough for apt to install the rest.
func basePackages() []string { return []string{"ca-certificates", "dbus", "systemd", "systemd-sysv"} }

// packageClass is a named list of packages of the configuration from which Debian's cloud team builds its images.
type packageClass struct {
	name     string
	packages []string
}

// publishedClasses returns the lists of the image of Debian 12 for EC2, which are installed without the packages that they
// recommend, on top of debootstrap's minimal variant. The lists are those of config_space/bookworm/package_config in
// https://salsa.debian.org/cloud-team/debian-cloud-images at e1910bcd363f (June 2025); which of them the image has is in
// src/debian_cloud_images/resources/image.yaml there: those of the release bookworm and of the vendor ec2. The list of
// the architecture is left out: a kernel and a boot loader (linux-image-cloud-amd64, grub-cloud-amd64), which a machine
// made of namespaces cannot use. So is libnss-resolve, which the list SYSTEM_BOOT removes again from bookworm.
func publishedClasses() []packageClass {
	return []packageClass{
		{name: "SYSTEM_BOOT", packages: []string{
			"sudo", "libpam-systemd", "systemd-resolved", "libnss-myhostname", "netplan.io", "polkitd",
			"unattended-upgrades", "apparmor", "zstd", "apt-utils", "init", "iptables", "iputils-ping", "less",
			"nano", "netbase", "vim-tiny", "whiptail",
		}},
		{name: "TIME_SYSTEMD", packages: []string{"systemd-timesyncd"}},
		{name: "CLOUD", packages: []string{"openssh-server", "ssh-import-id", "cloud-initramfs-growroot"}},
		{name: "EC2", packages: []string{"awscli", "cloud-init", "cloud-guest-utils", "amazon-ec2-utils"}},
		{name: "EXTRAS", packages: []string{
			"apt-listchanges", "bash-completion", "bind9-host", "less", "man-db", "manpages", "socat", "pciutils",
			"reportbug", "traceroute", "vim", "psmisc", "tcpdump", "ca-certificates", "curl", "ethtool",
			"uuid-runtime", "screen", "xz-utils",
		}},
	}
}

// debianPackages returns what apt installs, in order and without duplicates.
func debianPackages() []string {
	var out []string
	for _, class := range publishedClasses() {
		out = append(out, class.packages...)
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// maskedDebianUnits returns the systemd units that are masked. All others run, or systemd skips them because of the
// conditions that they have: docs/region.md lists both.
func maskedDebianUnits() []string {
	return slices.Concat(
		[]string{
			// They would change or wait for what belongs to the host: AppArmor's profiles, binary formats, volumes.
			"apparmor.service", "e2scrub_all.timer", "e2scrub_reap.service", "proc-sys-fs-binfmt_misc.automount",
			"sys-fs-fuse-connections.mount", "systemd-binfmt.service",
			// They need Debian's mirrors, to which no packet gets.
			"apt-daily-upgrade.service", "apt-daily-upgrade.timer", "apt-daily.service", "apt-daily.timer",
			// A keyboard and a screen. The console shows what a machine prints.
			"console-getty.service", "container-getty@.service", "getty-static.service", "getty.target", "getty@.service",
			"serial-getty@.service", "systemd-ask-password-console.path", "systemd-ask-password-wall.path",
		},
		networkUnits(),
	)
}
