// SPDX-License-Identifier: Apache-2.0

package image

import (
	_ "embed"
	"slices"

	"github.com/rogpeppe/go-internal/txtar"
)

//go:embed ubuntu.txtar
var ubuntuArchive []byte

//go:embed ubuntu.sh
var ubuntuScript string

// ubuntuRecipe is Ubuntu 24.04, with the packages of Canonical's cloud image. The scripts that build that image
// (package livecd-rootfs of Ubuntu 24.04, live-build/auto/config, project ubuntu-cpc) install these three tasks and
// ubuntu-minimal, then a kernel and a boot loader, which a machine made of namespaces cannot use.
func ubuntuRecipe() recipe {
	return recipe{
		suite:    "noble",
		script:   "/usr/share/debootstrap/scripts/gutsy", // Debian 12 has no link with the name of this suite yet
		mirrors:  map[string]string{"amd64": "http://archive.ubuntu.com/ubuntu", "arm64": "http://ports.ubuntu.com/ubuntu-ports"},
		keyring:  ubuntuKeyring(),
		packages: []string{"minimal^", "standard^", "cloud-image^", "ubuntu-minimal"},
		masked:   maskedUbuntuUnits(),
		overlay:  ubuntuOverlay(),
		finish:   ubuntuScript,
		cache:    "debs-ubuntu-24.04",
	}
}

// ubuntuKeyring is the package with the keys of Ubuntu's archive, which Debian does not have. Its hash is in the index
// of the suite noble, whose signature was verified with the key that the package contains, of 2018:
// F6EC B376 2474 EDA9 D21B  7022 8719 20D1 991B C93C.
func ubuntuKeyring() pinnedPackage {
	return pinnedPackage{
		path:   "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
		sha256: "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
		file:   "usr/share/keyrings/ubuntu-archive-keyring.gpg",
	}
}

// ubuntuOverlay returns the region's files: those of Debian's image that describe the region and not the
// distribution, and Ubuntu's own.
func ubuntuOverlay() []byte {
	shared := []string{
		"etc/apt/apt.conf.d/90slim", "etc/dpkg/dpkg.cfg.d/90slim", "etc/systemd/system.conf.d/10-region.conf",
		"etc/systemd/journald.conf.d/10-region.conf", "usr/local/sbin/modprobe", "etc/fstab",
		"etc/cloud/ds-identify.cfg", "etc/cloud/hypervisor-uuid", "etc/containerd/conf.d/10-region.toml",
		"etc/containerd/certs.d/198.18.0.1:5000/hosts.toml", "etc/kubernetes/kubelet.conf.d/10-region.conf",
	}

	out := txtar.Parse(ubuntuArchive)
	for _, f := range txtar.Parse(overlayArchive).Files {
		if slices.Contains(shared, f.Name) {
			out.Files = append(out.Files, f)
		}
	}

	return txtar.Format(out)
}

// maskedUbuntuUnits returns the systemd units that are masked. All others run, or systemd skips them because of the
// conditions that they have for containers.
func maskedUbuntuUnits() []string {
	return slices.Concat(hostUnits(), internetUnits(), consoleUnits(), networkUnits())
}

// hostUnits returns the units that would change or wait for what belongs to the host: AppArmor's profiles, binary formats,
// volumes and their checks, the TPM.
func hostUnits() []string {
	return []string{
		"apparmor.service", "blk-availability.service", "e2scrub_all.timer", "e2scrub_reap.service",
		"proc-sys-fs-binfmt_misc.automount", "sys-fs-fuse-connections.mount", "systemd-binfmt.service",
		"tpm-udev.path", "udisks2.service",
	}
}

// internetUnits returns the units that need Canonical's servers, to which no packet gets. Snaps are mounted images of
// its store.
func internetUnits() []string {
	return []string{
		"apt-daily-upgrade.service", "apt-daily-upgrade.timer", "apt-daily.service", "apt-daily.timer",
		"fwupd-refresh.timer", "motd-news.timer", "snapd.apparmor.service", "snapd.autoimport.service",
		"snapd.core-fixup.service", "snapd.recovery-chooser-trigger.service", "snapd.seeded.service", "snapd.service",
		"snapd.snap-repair.timer", "snapd.socket", "ua-timer.timer", "update-notifier-download.timer",
		"update-notifier-motd.timer",
	}
}

// consoleUnits returns the units of a keyboard and a screen. The console shows what a machine prints.
func consoleUnits() []string {
	return []string{
		"console-getty.service", "console-setup.service", "container-getty@.service", "getty-static.service",
		"getty.target", "getty@.service", "keyboard-setup.service", "serial-getty@.service", "setvtrgb.service",
		"systemd-ask-password-console.path", "systemd-ask-password-wall.path",
	}
}

// networkUnits returns the units that would wait for DHCP: a machine has its address before it boots.
func networkUnits() []string {
	return []string{"cloud-init-local.service", "systemd-networkd-wait-online.service"}
}
