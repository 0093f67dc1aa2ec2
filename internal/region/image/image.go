// SPDX-License-Identifier: Apache-2.0

// Package image builds the root file system that the region's machines boot from: the local stand-in for a stock
// Debian 12 "AMI", with systemd, cloud-init and the tools a Kubernetes node needs. It knows nothing of instances,
// networks or the provisioner; what is particular to machines of this region lies in overlay.txtar.
package image

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed overlay.txtar
var overlayArchive []byte

//go:embed finish.sh
var finishScript string

// Options say where and from what an image is built.
type Options struct {
	CacheDir string              // the image cache, such as ~/.cache/slipway/image
	Arch     string              // Go's name of the architecture, such as amd64
	Mirror   string              // Debian mirror; empty means the one this machine is configured with
	Progress func(stage string)  // called at the start of each stage; nil means silence
	LookPath func(string) string // finds a program, empty where there is none; nil means the usual PATH of root
}

// Image is a finished root file system. Nothing writes to Root: machines lay their own layer over it.
type Image struct {
	ID   string `json:"id"`   // ami-…, a function of the content's recipe
	Root string `json:"root"` // absolute path
	Arch string `json:"arch"`
}

// ComputeID is the identity that Build would give an image of this architecture. It needs neither root nor a network.
func ComputeID(arch string) string {
	h := sha256.New()
	fmt.Fprintf(
		h,
		"%s\n%s\n%s\n%s\n",
		debianSuite,
		arch,
		strings.Join(installedPackages(), "\n"),
		strings.Join(maskedUnits(), "\n"),
	)

	h.Write(overlayArchive)
	h.Write([]byte(finishScript))

	return "ami-" + hex.EncodeToString(h.Sum(nil))[:17]
}

// Find returns the image with this identity, or an error wrapping fs.ErrNotExist where it has not been built.
func Find(dir, id string) (Image, error) {
	if id == "" || id != filepath.Base(id) {
		return Image{}, fmt.Errorf("image %q: not an image id", id)
	}

	data, err := os.ReadFile(filepath.Join(dir, id, "image.json"))
	if err != nil {
		return Image{}, fmt.Errorf("find image %s: %w", id, err)
	}

	var img Image
	if err := json.Unmarshal(data, &img); err != nil {
		return Image{}, fmt.Errorf("read image %s: %w", id, err)
	}

	img.Root = filepath.Join(dir, id, "root") // the cache may have been moved

	return img, nil
}

// Build returns the image for opts.Arch, building it where the cache has none. A build that was interrupted leaves only
// a folder that the next one removes; the packages it had fetched are used again. It needs root.
func Build(ctx context.Context, opts Options) (Image, error) {
	id := ComputeID(opts.Arch)
	if img, err := Find(opts.CacheDir, id); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return img, err
	}

	if err := opts.checkRequirements(); err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", id, err)
	}

	unlock, err := lockCache(opts.CacheDir)
	if err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", id, err)
	}

	defer unlock()
	if img, err := Find(opts.CacheDir, id); err == nil { // somebody else built it meanwhile
		return img, nil
	}

	b := builder{opts: opts, id: id, buildDir: filepath.Join(opts.CacheDir, ".build")}
	if err := b.runStages(ctx); err != nil {
		return Image{}, fmt.Errorf("build image %s: %w", id, err)
	}

	return Find(opts.CacheDir, id)
}

// checkRequirements refuses what cannot work, everything at once.
func (o Options) checkRequirements() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(
			errs,
			errors.New("needs root: the image is a Debian root file system with device nodes and owners"),
		)
	}

	for _, program := range []string{"debootstrap", "chroot", "mount", "sh"} {
		if o.findProgram(program) == "" {
			errs = append(
				errs,
				fmt.Errorf(
					"program %s not found: install the Debian package %s",
					program,
					packageOf(program),
				),
			)
		}
	}

	return errors.Join(errs...)
}

func packageOf(program string) string {
	switch program {
	case "debootstrap", "mount":
		return program
	case "sh":
		return "dash"
	default:
		return "coreutils"
	}
}

// findProgram is where a program lies; the sbin folders are looked at too, since sudo often leaves them out of PATH.
func (o Options) findProgram(program string) string {
	if o.LookPath != nil {
		return o.LookPath(program)
	}

	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"} {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path
		}
	}

	return ""
}

func lockCache(dir string) (func(), error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("make image cache: %w", err)
	}

	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock image cache: %w", err)
	}

	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock image cache %s: %w", dir, err), f.Close())
	}

	return func() { _ = f.Close() }, nil
}
