// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/filesum"
)

const (
	// parallelDownloads is the number of files that are downloaded at the same time.
	parallelDownloads = 4
	// downloadAttempts is the number of attempts for one file.
	downloadAttempts = 3
	// retryDelay is the time between two attempts.
	retryDelay = 2 * time.Second
	// maxFileSize is the size from which a download is refused, in bytes: 1 GiB, twice the largest release file.
	maxFileSize = 1 << 30
)

// errPermanent marks a failure that another attempt does not change.
var errPermanent = errors.New("another attempt does not help")

// downloadFiles downloads the selected files. It continues after a failure, and returns all failures.
func (f *fetcher) downloadFiles(ctx context.Context) error {
	errs := make([]error, len(f.selected.Files))
	var group errgroup.Group
	group.SetLimit(parallelDownloads)

	for i, file := range f.selected.Files {
		group.Go(func() error {
			if err := f.downloadFile(ctx, file); err != nil {
				errs[i] = fmt.Errorf("download %s %s: %w", file.Name, file.Version, err)
			}

			return nil
		})
	}

	_ = group.Wait() // the failures are in errs

	return errors.Join(errs...)
}

// downloadFile downloads one file, unless it is there with the right hash.
func (f *fetcher) downloadFile(ctx context.Context, file asset.File) error {
	path := filepath.Join(f.Out, "files", strings.TrimPrefix(file.URL, "https://"))
	if sum, err := (filesum.Cache{}).Sum(path); err == nil && sum == file.SHA256 {
		f.progress.skip()
		return nil
	}

	source, err := f.Catalog.File(file.Name, file.Version, file.Arch) // has the address of the mirror
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create its folder: %w", err)
	}

	start := f.Clock()
	size, err := Download(ctx, f.Transport, source, path)
	if err != nil {
		return err
	}

	f.progress.done(file.Name+" "+file.Version, size, f.Clock().Sub(start))

	return nil
}

// Download downloads a file from its URL to a path, checks its hash and returns its size. It tries again if the server
// fails or the connection breaks.
func Download(ctx context.Context, transport http.RoundTripper, file asset.File, path string) (int64, error) {
	client := http.Client{Transport: transport}
	for attempt := 1; ; attempt++ {
		size, err := tryDownload(ctx, client, file, path)
		if err == nil || attempt == downloadAttempts || errors.Is(err, errPermanent) || ctx.Err() != nil {
			return size, err
		}

		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

// tryDownload downloads a file once. The file gets its name after its hash was checked.
func tryDownload(ctx context.Context, client http.Client, file asset.File, path string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, file.URL, nil)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errPermanent, err)
	}

	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}

	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("GET %s: %s", file.URL, resp.Status)
		if resp.StatusCode < http.StatusInternalServerError {
			err = fmt.Errorf("%w; %w", err, errPermanent)
		}

		return 0, err
	}

	partial := path + ".partial"
	size, sum, err := saveHashed(partial, io.LimitReader(resp.Body, maxFileSize))
	if err != nil {
		return 0, errors.Join(fmt.Errorf("GET %s: %w", file.URL, err), os.Remove(partial))
	}

	if sum != file.SHA256 {
		return 0, errors.Join(
			fmt.Errorf("%s has the SHA-256 %s, and the catalogue says %s", file.URL, sum, file.SHA256),
			os.Remove(partial),
		)
	}

	return size, os.Rename(partial, path)
}

// saveHashed writes what r returns to a file, and returns its size and SHA-256.
func saveHashed(path string, r io.Reader) (size int64, sum string, err error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, "", err
	}

	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(out, h), r)

	return size, hex.EncodeToString(h.Sum(nil)), errors.Join(err, out.Close())
}
