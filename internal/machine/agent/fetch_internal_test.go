// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func TestFetchRefusesAWrongHash(t *testing.T) {
	root := &HostFS{Dir: t.TempDir()}
	f := Fetcher{Root: root, Open: &bodies{by: map[string][]byte{"u": []byte("evil")}}, Wait: sleep.For, OnRetry: func(error) {}}
	file := node.File{Name: "kubelet", URL: "u", SHA256: sum([]byte("good")), Form: node.FormBinary}
	_, err := f.FetchAll(t.Context(), []node.File{file})
	var wrong HashError
	if !errors.As(err, &wrong) || wrong.Name != "kubelet" || wrong.Want != file.SHA256 || wrong.Got != sum([]byte("evil")) {
		t.Fatalf("got %v, want a HashError of kubelet", err)
	}
	if _, err := os.Stat(root.Path(assetPath(file))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the wrong file is there: %v", err)
	}
	// The report that validate shows names the file and both hashes.
	var console bytes.Buffer
	r := &Reporter{Open: func() (io.WriteCloser, error) { return nopCloser{&console}, nil }, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	r.Failed("verify", err)
	for _, want := range []string{"slipway-node: {", `"state":"failed"`, "kubelet", file.SHA256, wrong.Got, `"hint"`} {
		if !strings.Contains(console.String(), want) {
			t.Errorf("report lacks %s: %s", want, console.String())
		}
	}
}

// TestDownloadsAreBounded: a server that sends without end fills the disk. Seen to succeed before downloads had a limit.
func TestDownloadsAreBounded(t *testing.T) {
	for name, size := range map[string]int64{"size of the catalogue": 4, "size unknown": 0} {
		t.Run(name, func(t *testing.T) {
			sent := &endless{}
			f := Fetcher{Root: &HostFS{Dir: t.TempDir()}, Open: sent, Wait: sleep.For, OnRetry: func(err error) { t.Errorf("retried: %v", err) }}
			f.MaxBytes = 1 << 20
			file := node.File{Name: "kubelet", URL: "u", SHA256: sum([]byte("good")), Form: node.FormBinary, Size: size}
			_, err := f.FetchAll(t.Context(), []node.File{file})
			if _, is := errors.AsType[SizeError](err); !is || !isPermanent(err) {
				t.Fatalf("got %v, want a SizeError", err)
			}
			if sent.bytes > 2<<20 {
				t.Errorf("%d bytes were read", sent.bytes)
			}
			if left, err := os.ReadDir(f.Root.Path(AssetDir + "/" + file.SHA256)); err != nil || len(left) > 0 {
				t.Errorf("left on the disk: %v, %v", left, err)
			}
		})
	}

	exact := Fetcher{Root: &HostFS{Dir: t.TempDir()}, Open: &bodies{by: map[string][]byte{"u": []byte("good")}}, Wait: sleep.For, OnRetry: func(error) {}}
	file := node.File{Name: "kubelet", URL: "u", SHA256: sum([]byte("good")), Form: node.FormBinary, Size: 4}
	if _, err := exact.FetchAll(t.Context(), []node.File{file}); err != nil {
		t.Errorf("a file of exactly its size: %v", err)
	}
}

// endless is a server that sends without end.
type endless struct{ bytes int64 }

func (e *endless) Open(context.Context, string) (io.ReadCloser, error) { return nopReader{e}, nil }

func (e *endless) Read(p []byte) (int, error) {
	e.bytes += int64(len(p))
	if e.bytes > 64<<20 {
		return 0, io.ErrUnexpectedEOF // the test must end
	}
	return len(p), nil
}

type nopReader struct{ io.Reader }

func (nopReader) Close() error { return nil }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestFetchTriesAgainAndCaches(t *testing.T) {
	good := archive(t, map[string]string{"bin/containerd": "c", "bin/ctr": "t"})
	b := &bodies{by: map[string][]byte{}}
	waits := 0
	f := Fetcher{
		Root: &HostFS{Dir: t.TempDir()}, Open: b, OnRetry: func(error) {},
		Wait: func(context.Context, time.Duration) error { waits++; b.by["u"] = good; return nil },
	}
	files := []node.File{{Name: "containerd", URL: "u", SHA256: sum(good), Form: node.FormArchive}}
	for range 2 {
		if _, err := f.FetchAll(t.Context(), files); err != nil {
			t.Fatal(err)
		}
	}
	if waits != 1 || b.gets != 2 {
		t.Errorf("%d waits and %d downloads, want 1 and 2", waits, b.gets)
	}
	if err := linkExecutables(f.Root, assetPath(files[0])+"/bin", "/usr/local/bin"); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(f.Root.Path("/usr/local/bin/ctr")); err != nil || !strings.Contains(to, files[0].SHA256) {
		t.Errorf("ctr → %q, %v", to, err)
	}
}

// TestSameContentIsFetchedOnce: kubelet and kubectl are one program in a local region. It is downloaded once, and a
// copy that is broken later is replaced.
func TestSameContentIsFetchedOnce(t *testing.T) {
	program := []byte("many programs in one")
	b := &bodies{by: map[string][]byte{"first": program}}
	f := Fetcher{Root: &HostFS{Dir: t.TempDir()}, Open: b, Wait: sleep.For, OnRetry: func(error) {}}
	kubelet := node.File{Name: "kubelet", URL: "first", SHA256: sum(program), Form: node.FormBinary}
	kubectl := kubelet
	kubectl.Name, kubectl.URL = "kubectl", "second"
	paths := func() map[string]string {
		t.Helper()
		paths, err := f.FetchAll(t.Context(), []node.File{kubelet, kubectl})
		if err != nil {
			t.Fatal(err)
		}
		for name, path := range paths {
			if got, err := os.ReadFile(f.Root.Path(path)); err != nil || !bytes.Equal(got, program) {
				t.Errorf("%s has %q, %v", name, got, err)
			}
		}
		return paths
	}
	target := f.Root.Path(paths()["kubectl"])
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	paths()
	paths()
	if b.gets != 1 {
		t.Errorf("%d downloads, want 1", b.gets)
	}
}
