// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// AssetDir holds downloads, each under its hash, so that what is there is known to be right.
const AssetDir = "/var/lib/slipway/assets"

// HashError says that a download is not what was asked for. It is never installed.
type HashError struct {
	Name, URL, Want, Got string
}

// Error names the file and both hashes.
func (e HashError) Error() string {
	return fmt.Sprintf("%s from %s has sha256 %s, want %s", e.Name, e.URL, e.Got, e.Want)
}

// Opener opens a download by URL.
type Opener interface {
	Open(ctx context.Context, url string) (io.ReadCloser, error)
}

// Fetcher downloads files into Root's AssetDir.
type Fetcher struct {
	Root *HostFS
	Open Opener
	// Wait pauses between tries.
	Wait func(context.Context, time.Duration) error
	// OnRetry is told what goes wrong while it is tried again.
	OnRetry func(error)
	// StallTimeout is how long a download may give nothing before it is begun anew. Default 1 minute.
	StallTimeout time.Duration
}

// FetchAll fetches the files, four at a time, and returns where each lies by name. A wrong hash ends it at once; any other
// error is tried again until ctx ends.
func (f Fetcher) FetchAll(ctx context.Context, files []node.File) (map[string]string, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, file := range files {
		group.Go(func() error { return f.fetchWithRetry(ctx, file) })
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	out := map[string]string{}
	for _, file := range files {
		out[file.Name] = assetPath(file)
	}

	return out, nil
}

// assetPath is where a file lies: the downloaded file, or the folder of an unpacked archive.
func assetPath(f node.File) string { return AssetDir + "/" + f.SHA256 + "/" + f.Name }

func (f Fetcher) fetchWithRetry(ctx context.Context, file node.File) error {
	pause := time.Second
	for {
		err := f.fetchFile(ctx, file)
		var wrong HashError
		if err == nil || errors.As(err, &wrong) {
			return err
		}

		f.OnRetry(err)
		if err := f.Wait(ctx, pause); err != nil {
			return err
		}

		pause = min(2*pause, 30*time.Second)
	}
}

// fetchFile fetches a file unless it is there. It becomes visible under its hash only when it is whole and right.
func (f Fetcher) fetchFile(ctx context.Context, file node.File) error {
	target := f.Root.Path(assetPath(file))
	if isFetched(target, file) {
		return nil
	}

	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("fetch %s: %w", file.Name, err)
	}

	part := target + ".part"
	if err := f.downloadFile(ctx, file, part); err != nil {
		return errors.Join(err, os.Remove(part))
	}

	if file.Form == node.FormBinary {
		if err := os.Rename(part, target); err != nil {
			return fmt.Errorf("fetch %s: %w", file.Name, err)
		}
	} else if err := extractArchive(part, target); err != nil {
		return fmt.Errorf("unpack %s: %w", file.Name, err)
	}

	f.Root.recordChange(assetPath(file))

	return nil
}

// isFetched says whether a file is there and right. A machine that lost its power may have the name without the bytes, so
// a program is hashed again; the folder of an archive was renamed whole.
func isFetched(target string, file node.File) bool {
	if file.Form != node.FormBinary {
		_, err := os.Stat(target)
		return err == nil
	}

	in, err := os.Open(target)
	if err != nil {
		return false
	}

	defer in.Close() //nolint:errcheck // read only
	hash := sha256.New()
	_, err = io.Copy(hash, in)

	return err == nil && hex.EncodeToString(hash.Sum(nil)) == file.SHA256
}

func (f Fetcher) downloadFile(ctx context.Context, file node.File, part string) error {
	limit := cmp.Or(f.StallTimeout, time.Minute)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(fmt.Errorf("nothing came for %s", limit)) })
	defer timer.Stop()
	body, err := f.Open.Open(ctx, file.URL)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", file.Name, stallCause(ctx, err))
	}

	defer body.Close() //nolint:errcheck // read to its end or in error
	out, err := os.OpenFile(
		part,
		os.O_CREATE|os.O_TRUNC|os.O_WRONLY,
		0o755,
	)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", file.Name, err)
	}

	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash), stallResetReader{body, timer, limit})
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("fetch %s from %s: %w", file.Name, file.URL, stallCause(ctx, err))
	}

	if got := hex.EncodeToString(hash.Sum(nil)); got != file.SHA256 {
		return HashError{
			Name: file.Name,
			URL:  file.URL,
			Want: file.SHA256,
			Got:  got,
		}
	}

	return nil
}

// stallResetReader puts the timer off whenever something is read.
type stallResetReader struct {
	io.Reader
	timer *time.Timer
	limit time.Duration
}

// Read reads from the reader.
func (l stallResetReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.timer.Reset(l.limit)
	return n, err
}

// stallCause is why ctx ended, where that is what err comes from.
func stallCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause
	}

	return err
}

// HTTPOpener opens http and https URLs.
type HTTPOpener struct{ Client *http.Client }

// Open returns the body of a 200 answer.
func (h HTTPOpener) Open(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}

	resp, err := h.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}

	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("get %s: %s", url, resp.Status), resp.Body.Close())
	}

	return resp.Body, nil
}
