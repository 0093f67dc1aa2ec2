// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// libDir has the programs in deb and rpm packages; bin has links to them.
const libDir = "usr/lib/slipway/"

// buildDebs builds a Debian package for each Linux platform.
func (r *release) buildDebs(ctx context.Context, work string) error {
	return r.buildLinuxPackages(ctx, work, formatDeb, map[string]string{"amd64": "amd64", "arm64": "arm64"})
}

// buildRPMs builds an RPM package for each Linux platform.
func (r *release) buildRPMs(ctx context.Context, work string) error {
	return r.buildLinuxPackages(ctx, work, formatRPM, map[string]string{"amd64": "x86_64", "arm64": "aarch64"})
}

// buildLinuxPackages builds packages with nfpm. arches maps Go's names of architectures to the format's.
func (r *release) buildLinuxPackages(
	ctx context.Context,
	work, format string,
	arches map[string]string,
) error {
	for _, p := range r.targets {
		if p.os != "linux" {
			continue
		}

		files, err := r.linuxFiles(work, p)
		if err != nil {
			return err
		}

		config, err := r.writeNFPMConfig(filepath.Join(work, p.String()+"-"+format), p, files)
		if err != nil {
			return err
		}

		name := fmt.Sprintf("slipway_%s_%s.%s", r.version.number, arches[p.arch], format)
		cmd := exec.CommandContext(
			ctx,
			r.nfpm,
			"package",
			"--config",
			config,
			"--packager",
			format,
			"--target",
			filepath.Join(r.out, name),
		)

		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.version.when.Unix()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nfpm: %w\n%s", err, out)
		}

		if err := r.addFile(name); err != nil {
			return err
		}
	}

	return nil
}

// linuxFiles returns the files of a deb or rpm package.
func (r *release) linuxFiles(work string, p platform) ([]file, error) {
	shared, err := r.sharedFiles("usr/share/slipway/")
	if err != nil {
		return nil, err
	}

	completions, err := r.completionFiles(
		"usr/share/bash-completion/completions/slipway",
		"usr/share/zsh/vendor-completions/_slipway",
		"usr/share/fish/vendor_completions.d/slipway.fish",
	)
	if err != nil {
		return nil, err
	}

	manual, err := r.manualFiles(work, "usr/share/man/man1/")
	if err != nil {
		return nil, err
	}

	files := slices.Concat(r.programFiles(p, libDir), shared, completions, manual)
	for name, link := range map[string]string{
		"usr/bin/slipway":         "../lib/slipway/slipway",
		"usr/bin/kubectl-slipway": "../lib/slipway/slipway",
	} {
		files = append(files, file{path: name, link: link})
	}

	files = append(
		files,
		file{path: "usr/bin/kubectl_complete-slipway", mode: 0o755, body: []byte(kubectlCompletion)},
		file{path: "usr/share/doc/slipway/copyright", mode: 0o644, source: filepath.Join(r.root, "LICENSE")},
		file{path: "usr/share/doc/slipway/README.md", mode: 0o644, source: filepath.Join(r.root, "README.md")},
	)
	sortFiles(files)

	return files, nil
}

// nfpmConfig is the part of nfpm's configuration that is used.
type nfpmConfig struct {
	Name          string    `json:"name"`
	Arch          string    `json:"arch"`
	Platform      string    `json:"platform"`
	Version       string    `json:"version"`
	VersionSchema string    `json:"version_schema"`
	Release       string    `json:"release"`
	Section       string    `json:"section"`
	Priority      string    `json:"priority"`
	Maintainer    string    `json:"maintainer"`
	Description   string    `json:"description"`
	Homepage      string    `json:"homepage"`
	License       string    `json:"license"`
	ModTime       time.Time `json:"mtime"`
	// Contents are the files.
	Contents []nfpmContent `json:"contents"`
	// Overrides are settings by format.
	Overrides map[string]nfpmOverride `json:"overrides"`
	RPM       nfpmRPM                 `json:"rpm"`
}

// nfpmContent is a file of a package.
type nfpmContent struct {
	Source      string       `json:"src"`
	Destination string       `json:"dst"`
	Type        string       `json:"type,omitempty"`
	FileInfo    nfpmFileInfo `json:"file_info"`
}

// nfpmFileInfo has the attributes of a file.
type nfpmFileInfo struct {
	Mode    uint32    `json:"mode,omitempty"`
	Owner   string    `json:"owner"`
	Group   string    `json:"group"`
	ModTime time.Time `json:"mtime"`
}

// nfpmOverride are settings of one format.
type nfpmOverride struct {
	Recommends []string `json:"recommends"`
	Suggests   []string `json:"suggests"`
}

// nfpmRPM are settings of RPM packages.
type nfpmRPM struct {
	// BuildHost replaces the name of this machine.
	BuildHost string `json:"buildhost"`
}

// writeNFPMConfig writes nfpm's configuration, and the files that exist only in memory, below dir.
func (r *release) writeNFPMConfig(dir string, p platform, files []file) (string, error) {
	config := nfpmConfig{
		Name:          programCLI,
		Arch:          p.arch,
		Platform:      p.os,
		Version:       r.version.number,
		VersionSchema: "semver",
		Release:       "1",
		Section:       "admin",
		Priority:      "optional",
		Maintainer:    "The Slipway authors <maintainers@slipway.dev>",
		Description:   "Creates and operates Kubernetes clusters on AWS\nwith a local AWS region to try everything without an account.",
		Homepage:      "https://github.com/slipway-k8s/slipway",
		License:       "Apache-2.0",
		ModTime:       r.version.when,
		RPM:           nfpmRPM{BuildHost: "reproducible"},
		Overrides: map[string]nfpmOverride{
			// What the local region and the assets need; see hack/deps.sh.
			formatDeb: {
				Recommends: []string{"ca-certificates", "nftables", "iproute2", "e2fsprogs", "iptables", "conntrack", "debootstrap", "debian-archive-keyring", "gpgv"},
				Suggests:   []string{"golang-go", "gcc", "libc6-dev", "libseccomp-dev", "pkg-config", "bash-completion"},
			},
			formatRPM: {Recommends: []string{"ca-certificates"}},
		},
	}

	for _, f := range files {
		source, err := f.materialize(dir)
		if err != nil {
			return "", err
		}

		content := nfpmContent{
			Source:      source,
			Destination: "/" + f.path,
			FileInfo: nfpmFileInfo{
				Mode:    uint32(f.mode),
				Owner:   "root",
				Group:   "root",
				ModTime: r.version.when,
			},
		}
		if f.link != "" {
			content.Type = "symlink"
		}

		config.Contents = append(config.Contents, content)
	}

	body, err := json.MarshalIndent(config, "", "  ") // JSON is YAML
	if err != nil {
		return "", err
	}

	name := filepath.Join(dir, "nfpm.yaml")

	return name, os.WriteFile(name, body, 0o600)
}

// materialize returns the path of a file's content, which it writes below dir if it exists only in memory. Of
// a symbolic link it returns the target.
func (f file) materialize(dir string) (string, error) {
	if f.link != "" || f.source != "" {
		return f.link + f.source, os.MkdirAll(dir, 0o755)
	}

	name := filepath.Join(dir, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}

	return name, os.WriteFile(name, f.body, 0o600)
}
