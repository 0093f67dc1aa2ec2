// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// program is the name of nft in the copy.
	program = "nft"
	// script is the name of the script in the copy that runs it.
	script = "bin/nft"
	// contentsFile is the name of the list of the copy's files.
	contentsFile = "contents.json"
	// maxFileBytes limits a file of the copy. The largest, the C library, has 2 MiB.
	maxFileBytes = 64 << 20
	// partialSuffix is the end of the name of a new copy, which replaces the former one when it is complete.
	partialSuffix = ".new"
)

// contents lists the files of the copy. After a power failure a file may have its name but not its
// content, so a copy is used only if it has them all.
type contents struct {
	// Image is where the files come from.
	Image string `json:"image"`
	// Loader is the name of the dynamic loader.
	Loader string `json:"loader"`
	// Files are the SHA-256 of the files by name, in hex.
	Files map[string]string `json:"files"`
}

// readCopy returns the name of the copy's dynamic loader; false if there is no intact copy. It completes the replacement of a copy
// during which an agent was killed.
func (p *Program) readCopy() (loader string, ok bool) {
	dir := p.path(p.Dir)
	if loader, ok = readCopyIn(dir); ok {
		return loader, true
	}

	if _, ok = readCopyIn(dir + partialSuffix); !ok || replace(dir) != nil {
		return "", false
	}

	return readCopyIn(dir)
}

// replace makes the complete new copy of a directory the copy.
func replace(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+partialSuffix, dir)); err != nil {
		return fmt.Errorf("write the copy of nft: %w", err)
	}

	return nil
}

// readCopyIn is readCopy for one directory.
func readCopyIn(dir string) (loader string, ok bool) {
	body, err := os.ReadFile(filepath.Join(dir, contentsFile))
	if err != nil {
		return "", false
	}

	var c contents
	if json.Unmarshal(body, &c) != nil || c.Loader == "" || c.Files[program] == "" {
		return "", false
	}

	for name, want := range c.Files {
		in, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return "", false
		}

		hash := sha256.New()
		_, err = io.Copy(hash, in)
		_ = in.Close() // only read
		if err != nil || hex.EncodeToString(hash.Sum(nil)) != want {
			return "", false
		}
	}

	return c.Loader, c.Files[c.Loader] != ""
}

// copyFrom mounts an image and copies nft and what it needs. An earlier attempt may have ended at
// any point. The caller holds mu.
func (p *Program) copyFrom(ctx context.Context, image string) error {
	at := p.path(mountPoint)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("create the mount point of the image: %w", err)
	}

	// What an earlier attempt has left would be mounted twice, and its lease may have ended.
	if err := p.unmount(ctx, at); err != nil {
		return err
	}

	if err := p.mount(ctx, image, at); err != nil {
		return err
	}

	err := p.copyMounted(at, image)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmountTimeout)
	defer cancel()
	if unmountErr := p.unmount(last, at); unmountErr != nil {
		// The copy does not need it. containerd deletes the snapshot when its lease has ended.
		p.Log.Warn("cannot unmount the image with nft", slog.Any("error", unmountErr))
	}

	return err
}

// mount mounts an image read-only, and pulls it before if the machine does not have it.
func (p *Program) mount(ctx context.Context, image, at string) error {
	if p.mountAny(ctx, image, at) == nil {
		return nil
	}

	if err := p.Pull(ctx, image); err != nil {
		return fmt.Errorf("pull the image: %w", err)
	}

	return p.mountAny(ctx, image, at)
}

// mountAny mounts the image by the first of its names that containerd knows.
func (p *Program) mountAny(ctx context.Context, image, at string) error {
	var errs []error
	for _, name := range imageNames(image) {
		err := p.ctr(ctx, "mount", name, at)
		if err == nil {
			return nil
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// imageNames returns the names that containerd gives to an image: the reference, if ctr has pulled it, and the same without its tag, if
// it was pulled through the interface that the kubelet uses, which drops a tag next to a digest.
func imageNames(reference string) []string {
	name, digest, _ := strings.Cut(reference, "@")
	slash := strings.LastIndex(name, "/")
	colon := strings.LastIndex(name, ":")
	if digest == "" || colon <= slash {
		return []string{reference}
	}

	return []string{reference, name[:colon] + "@" + digest}
}

// unmount unmounts the image, and deletes its snapshot and lease. It succeeds if there are none.
func (p *Program) unmount(ctx context.Context, at string) error {
	return p.ctr(ctx, "unmount", "--rm", at)
}

// ctr runs a command for images in the kubelet's namespace of containerd.
func (p *Program) ctr(ctx context.Context, args ...string) error {
	_, err := p.Execute(ctx, "ctr", slices.Concat([]string{"--namespace", "k8s.io", "images"}, args)...)

	return err
}

// copyMounted copies nft, its dynamic loader and its libraries from the file tree of an image. The
// copy appears at its path only when it is complete.
func (p *Program) copyMounted(tree, image string) error {
	final := p.path(p.Dir)
	partial := final + partialSuffix
	scripts := filepath.Join(partial, filepath.Dir(script))
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(scripts, 0o755)); err != nil {
		return fmt.Errorf("create the directory of nft: %w", err)
	}

	source, err := openTree(tree)
	if err != nil {
		return err
	}

	defer source.close()
	copied, err := source.copyProgram(partial)
	if err != nil {
		return err
	}

	copied.Image = image
	if err := p.addScript(partial, copied); err != nil {
		return fmt.Errorf("write the copy of nft: %w", err)
	}

	return replace(final)
}

// addScript writes the script that runs the copy, and the list of the copy's files, to its directory.
func (p *Program) addScript(dir string, copied contents) error {
	body := "#!/bin/sh\nexec " + path.Join(p.Dir, copied.Loader) + " --library-path " + p.Dir + " " +
		path.Join(p.Dir, program) + ` "$@"` + "\n"
	hash := sha256.Sum256([]byte(body))
	copied.Files[script] = hex.EncodeToString(hash[:])
	list, err := json.Marshal(copied)
	if err != nil {
		return fmt.Errorf("encode the list of its files: %w", err)
	}

	err = os.WriteFile(filepath.Join(dir, script), []byte(body), 0o755)

	return errors.Join(err, os.WriteFile(filepath.Join(dir, contentsFile), list, 0o600))
}
