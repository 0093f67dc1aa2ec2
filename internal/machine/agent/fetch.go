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
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// AssetDir is the directory of downloads. Each is stored under its hash.
const AssetDir = "/var/lib/slipway/assets"

// HashError is the error of a download with an unexpected hash. Such a file is never installed.
// Retrying does not help.
type HashError struct {
	// Name of the file and URL of the download.
	Name, URL string
	// Want and Got are the expected and the actual SHA-256 in lower-case hex.
	Want, Got string
}

// Error returns the file, the URL, and both hashes.
func (e HashError) Error() string {
	return fmt.Sprintf("%s from %s has sha256 %s, want %s", e.Name, e.URL, e.Got, e.Want)
}

// maxDownloadBytes is the default of Fetcher.MaxBytes.
const maxDownloadBytes = 1 << 30

// SizeError is the error of a download that is larger than it may be. Its hash cannot be right, and it would fill the
// disk. Retrying does not help.
type SizeError struct {
	// Name of the file and URL of the download.
	Name, URL string
	// Limit is the size that it must not exceed, in bytes.
	Limit int64
}

// Error returns the file, the URL, and the limit.
func (e SizeError) Error() string {
	return fmt.Sprintf("%s from %s has more than %d bytes", e.Name, e.URL, e.Limit)
}

// Opener opens a download by URL. The caller closes the reader.
type Opener interface {
	Open(ctx context.Context, url string) (io.ReadCloser, error)
}

// Fetcher downloads files into Root's AssetDir.
type Fetcher struct {
	// Root is the file system to write to.
	Root *HostFS
	// Open opens URLs.
	Open Opener
	// Wait sleeps between attempts.
	Wait func(context.Context, time.Duration) error
	// OnRetry is called with each error before a retry.
	OnRetry func(error)
	// StallTimeout is how long a download may receive no bytes before it is restarted. Default 1
	// minute.
	StallTimeout time.Duration
	// MaxBytes limits a download whose size the catalogue does not say. Default 1 GiB; the largest file of Kubernetes
	// has a tenth of it.
	MaxBytes int64
}

// FetchAll downloads the files, four at a time, and returns the path of each by name. Files with the same
// hash are downloaded once. A wrong hash fails at once with a HashError; other errors are retried with
// backoff until ctx ends.
func (f Fetcher) FetchAll(ctx context.Context, files []node.File) (map[string]string, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, same := range groupByHash(files) {
		group.Go(func() error { return f.fetchSame(ctx, same) })
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

// groupByHash returns the files in groups of the same hash and form, in their order.
func groupByHash(files []node.File) [][]node.File {
	type content struct {
		hash string
		form string
	}

	var out [][]node.File
	indexes := map[content]int{}
	for _, file := range files {
		key := content{file.SHA256, file.Form}
		i, known := indexes[key]
		if !known {
			i = len(out)
			indexes[key] = i
			out = append(out, nil)
		}

		out[i] = append(out[i], file)
	}

	return out
}

// fetchSame downloads the first of files with the same content, and links the others to it.
func (f Fetcher) fetchSame(ctx context.Context, same []node.File) error {
	for i, file := range same {
		if i > 0 && f.linkTwin(same[0], file) {
			continue
		}

		if err := f.fetchWithRetry(ctx, file); err != nil {
			return err
		}
	}

	return nil
}

// linkTwin makes file a hard link to the intact binary first, unless it is intact. It returns false if file must be
// downloaded.
func (f Fetcher) linkTwin(first, file node.File) bool {
	source := f.Root.Path(assetPath(first))
	target := f.Root.Path(assetPath(file))
	have, err := os.Stat(source)
	if err != nil || file.Form != node.FormBinary {
		return false
	}

	if old, err := os.Stat(target); err == nil && os.SameFile(have, old) || isFetched(target, file) {
		return true
	}

	part := target + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}

	if os.Link(source, part) != nil || os.Rename(part, target) != nil {
		return false
	}

	f.Root.recordChange(assetPath(file))

	return true
}

// assetPath returns the path of a downloaded file, or of an unpacked archive's directory.
func assetPath(f node.File) string { return AssetDir + "/" + f.SHA256 + "/" + f.Name }

func (f Fetcher) fetchWithRetry(ctx context.Context, file node.File) error {
	pause := time.Second
	for {
		err := f.fetchFile(ctx, file)
		if err == nil || isWrongFile(err) {
			return err
		}

		f.OnRetry(err)
		if err := f.Wait(ctx, pause); err != nil {
			return err
		}

		pause = min(2*pause, 30*time.Second)
	}
}

// isWrongFile reports whether a server has another file than expected.
func isWrongFile(err error) bool {
	if _, is := errors.AsType[HashError](err); is {
		return true
	}

	_, is := errors.AsType[SizeError](err)

	return is
}

// fetchFile downloads a file unless it exists. The file appears at its path only when it is
// complete and verified.
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

// isFetched reports whether a file exists and is intact. After a power failure a file may have its
// name but not its content, so binaries are hashed again. An archive's directory is renamed only
// when it is complete.
func isFetched(target string, file node.File) bool {
	if file.Form != node.FormBinary {
		_, err := os.Stat(target)
		return err == nil
	}

	in, err := os.Open(target)
	if err != nil {
		return false
	}

	defer func() { _ = in.Close() }()
	hash := sha256.New()
	_, err = io.Copy(hash, in)

	return err == nil && hex.EncodeToString(hash.Sum(nil)) == file.SHA256
}

func (f Fetcher) downloadFile(ctx context.Context, file node.File, part string) error {
	limit := cmp.Or(f.StallTimeout, time.Minute)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(fmt.Errorf("received no data for %s", limit)) })
	defer timer.Stop()
	body, err := f.Open.Open(ctx, file.URL)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", file.Name, stallCause(ctx, err))
	}

	defer func() { _ = body.Close() }()
	out, err := os.OpenFile(
		part,
		os.O_CREATE|os.O_TRUNC|os.O_WRONLY,
		0o755,
	)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", file.Name, err)
	}

	hash := sha256.New()
	most := cmp.Or(file.Size, f.MaxBytes, maxDownloadBytes)
	got, err := io.Copy(io.MultiWriter(out, hash), io.LimitReader(stallResetReader{body, timer, limit}, most+1))
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("fetch %s from %s: %w", file.Name, file.URL, stallCause(ctx, err))
	}

	if got > most {
		return SizeError{Name: file.Name, URL: file.URL, Limit: most}
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

// stallResetReader resets the stall timer on every read.
type stallResetReader struct {
	io.Reader
	timer *time.Timer
	limit time.Duration
}

// Read reads from the underlying reader.
func (l stallResetReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.timer.Reset(l.limit)
	return n, err
}

// stallCause returns the cause of the context's end if it was a stall, otherwise err.
func stallCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause
	}

	return err
}

// HTTPOpener opens http and https URLs with Client.
type HTTPOpener struct{ Client *http.Client }

// Open returns the body of a 200 response. Other responses are errors.
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
