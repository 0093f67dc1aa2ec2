// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
)

// maxKeyringBytes is the largest size of a package with keys: 1 MiB.
const maxKeyringBytes = 1 << 20

// pinnedPackage is a Debian package whose hash is known, and the file of it that is needed.
type pinnedPackage struct {
	path   string // below the mirror
	sha256 string // in hex digits
	file   string // path in the package
}

// unpackKeyring downloads the package with the keys of the mirror, unless the cache has it, and returns the path of its
// keys. It returns "" if this machine has the keys.
func (b builder) unpackKeyring(ctx context.Context, mirror string) (string, error) {
	k := b.recipe.keyring
	if k == (pinnedPackage{}) {
		return "", nil
	}

	deb := filepath.Join(b.packageCacheDir(), path.Base(k.path))
	if data, err := os.ReadFile(deb); err != nil || k.check(data) != nil {
		if err := k.download(ctx, mirror, deb); err != nil {
			return "", fmt.Errorf("fetch the keys of the mirror: %w", err)
		}
	}

	if err := b.runCommand(ctx, b.opts.findProgram("dpkg-deb"), "-x", deb, b.keyringDir()); err != nil {
		return "", fmt.Errorf("unpack the keys of the mirror: %w", err)
	}

	return filepath.Join(b.keyringDir(), k.file), nil
}

// download writes the package to a file after it has checked it.
func (k pinnedPackage) download(ctx context.Context, mirror, file string) error {
	url := mirror + "/" + k.path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err // it names the URL
	}

	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}

	data, err := io.ReadAll(io.LimitReader(response.Body, maxKeyringBytes))
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}

	if err := k.check(data); err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}

	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	return os.Rename(file+".new", file)
}

// check returns an error unless the data has the package's hash.
func (k pinnedPackage) check(data []byte) error {
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != k.sha256 {
		return fmt.Errorf("its SHA-256 is %s, not %s: the mirror has another file under this name", got, k.sha256)
	}

	return nil
}
