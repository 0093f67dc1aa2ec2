// SPDX-License-Identifier: Apache-2.0

package auditlog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/auditlog"
)

// lab is a log, as an API server writes it, and a store.
type lab struct {
	t       rapid.TB
	dir     string
	objects map[string][]byte
	// fail decides what happens to the next object: stored and no error, stored and an error, or neither.
	fail    func() (stored bool, err error)
	now     time.Time
	written int
	rotated int
}

func newLab(t rapid.TB, dir string) *lab {
	l := &lab{t: t, dir: dir, objects: map[string][]byte{}, now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	l.fail = func() (bool, error) { return true, nil }

	return l
}

func (l *lab) uploader() *auditlog.Uploader {
	return &auditlog.Uploader{
		Dir:       filepath.Join(l.dir, "log"),
		StateFile: filepath.Join(l.dir, "state", "audit.json"),
		MaxObject: 64,
		Now: func() time.Time {
			l.now = l.now.Add(time.Second)
			return l.now
		},
		Create: func(_ context.Context, name string, body []byte) error {
			if _, ok := l.objects[name]; ok {
				return store.ErrConflict
			}

			stored, err := l.fail()
			if stored {
				l.objects[name] = body
			}

			return err
		},
	}
}

// write appends lines, and a part of a further one, which the next call completes.
func (l *lab) write(lines int, partial bool) {
	l.must(os.MkdirAll(filepath.Join(l.dir, "log"), 0o700))
	f, err := os.OpenFile(filepath.Join(l.dir, "log", "audit.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	l.must(err)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	l.must(err)
	last := make([]byte, 1)
	if info.Size() > 0 {
		_, err = f.ReadAt(last, info.Size()-1)
		l.must(err)
		if last[0] != '\n' {
			_, err = io.WriteString(f, " end\n")
			l.must(err)
		}
	}

	for range lines {
		l.written++
		_, err = fmt.Fprintf(f, "event %d\n", l.written)
		l.must(err)
	}

	if partial {
		l.written++
		_, err = fmt.Fprintf(f, "event %d", l.written)
		l.must(err)
	}
}

// rotate renames the file and lets keep of the old ones stay.
func (l *lab) rotate(keep int) {
	l.write(0, false) // an API server rotates between lines
	l.rotated++
	log := filepath.Join(l.dir, "log")
	if err := os.Rename(filepath.Join(log, "audit.log"), filepath.Join(log, fmt.Sprintf("audit-%06d.log", l.rotated))); err != nil {
		return
	}

	old, err := filepath.Glob(filepath.Join(log, "audit-*.log"))
	l.must(err)
	slices.Sort(old)
	for _, path := range old[:max(0, len(old)-keep)] {
		l.must(os.Remove(path))
	}
}

// stored returns the lines of all objects in the order of their names, which is that of time.
func (l *lab) stored() []string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.objects)) {
		text.WriteString(strings.Join(l.linesOf(name), ""))
	}

	return slices.Collect(strings.Lines(text.String()))
}

// linesOf returns the lines of an object, or parts of a line that is longer than an object.
func (l *lab) linesOf(name string) []string {
	r, err := gzip.NewReader(bytes.NewReader(l.objects[name]))
	l.must(err)
	text, err := io.ReadAll(r)
	l.must(err)

	return slices.Collect(strings.Lines(string(text)))
}

// written lines that exist: those of the log's files.
func (l *lab) onDisk() []string {
	var out []string
	files, err := filepath.Glob(filepath.Join(l.dir, "log", "audit-*.log"))
	l.must(err)
	slices.Sort(files)
	for _, path := range append(files, filepath.Join(l.dir, "log", "audit.log")) {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}

		l.must(err)
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, "\n") {
				out = append(out, line)
			}
		}
	}

	return out
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// TestUploadModel: whatever fails and whenever the agent is killed, a stored line is never there twice or out of order,
// after an upload without an error every line that is on the disk is stored, and the numbers of objects show where lines
// are missing. Seen to fail with objects without numbers, and with a gap only for files that were seen to be incomplete.
func TestUploadModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "auditlog") //nolint:usetesting // rapid's T has no TempDir
		if err != nil {
			t.Fatal(err)
		}

		defer func() { _ = os.RemoveAll(dir) }()
		l := newLab(t, dir)
		u := l.uploader()
		l.write(1, false)
		_, err = u.Upload(context.Background()) // what is deleted before the first upload is unknown
		l.must(err)
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				l.write(rapid.IntRange(0, 12).Draw(t, "lines"), rapid.Bool().Draw(t, "partial"))
			},
			"rotate":  func(t *rapid.T) { l.rotate(rapid.IntRange(0, 3).Draw(t, "keep")) },
			"restart": func(*rapid.T) { u = l.uploader() },
			"upload that fails": func(t *rapid.T) {
				after := rapid.IntRange(0, 4).Draw(t, "after")
				stored := rapid.Bool().Draw(t, "stored")
				l.fail = func() (bool, error) {
					after--
					if after < 0 {
						return stored, errors.New("the connection was closed")
					}

					return true, nil
				}
				_, _ = u.Upload(context.Background())
				l.fail = func() (bool, error) { return true, nil }
			},
			"upload": func(t *rapid.T) {
				if _, err := u.Upload(context.Background()); err != nil {
					t.Fatal(err)
				}

				checkContains(t, l.stored(), l.onDisk())
			},
			"": func(t *rapid.T) {
				checkOrder(t, l.stored())
				checkNumbers(t, l)
			},
		})
	})
}

// checkNumbers checks that objects are numbered, and that lines are missing between two of them only if a number is.
func checkNumbers(t *rapid.T, l *lab) {
	t.Helper()
	last, lastNumber := 0, 0
	for _, name := range slices.Sorted(maps.Keys(l.objects)) {
		var number int
		if _, err := fmt.Sscanf(strings.Split(name, "-")[1], "%d", &number); err != nil || number <= lastNumber {
			t.Fatalf("object %s follows object %d (%v)", name, lastNumber, err)
		}

		for i, line := range l.linesOf(name) {
			var event int
			if _, err := fmt.Sscanf(line, "event %d", &event); err != nil {
				t.Fatal(err)
			}

			if event != last+1 && last > 0 && (i > 0 || number == lastNumber+1) {
				t.Fatalf("event %d follows %d, and object %d follows %d", event, last, number, lastNumber)
			}

			last = event
		}

		lastNumber = number
	}
}

// checkOrder checks that the numbers of events increase.
func checkOrder(t *rapid.T, lines []string) {
	t.Helper()
	last := 0
	for _, line := range lines {
		var number int
		if _, err := fmt.Sscanf(line, "event %d", &number); err != nil || number <= last {
			t.Fatalf("line %q after event %d (%v) in\n%s", line, last, err, strings.Join(lines, ""))
		}

		last = number
	}
}

func checkContains(t *rapid.T, stored, wanted []string) {
	t.Helper()
	for _, line := range wanted {
		if !slices.Contains(stored, line) {
			t.Fatalf("line %q is not stored", line)
		}
	}
}

// TestLostLinesAreCounted: a file that is deleted before its lines were copied is reported.
func TestLostLinesAreCounted(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir())
	u := l.uploader()
	l.write(3, false)
	l.fail = func() (bool, error) { return false, errors.New("access denied") }
	if _, err := u.Upload(t.Context()); err == nil {
		t.Fatal("an upload that failed is no error")
	}

	l.rotate(0)
	l.fail = func() (bool, error) { return true, nil }
	got, err := u.Upload(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(auditlog.Result{Lost: int64(len("event 1\nevent 2\nevent 3\n")), Gap: true}, got); diff != "" {
		t.Error(diff)
	}

	if again, err := u.Upload(t.Context()); err != nil || again != (auditlog.Result{}) {
		t.Errorf("the next upload: %+v, %v; want nothing", again, err)
	}
}

// TestDamagedStateCopiesAgain: without its state an uploader copies everything again instead of nothing.
func TestDamagedStateCopiesAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir())
	l.write(2, false)
	if _, err := l.uploader().Upload(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(l.uploader().StateFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := l.uploader().Upload(t.Context()); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"event 1\n", "event 2\n", "event 1\n", "event 2\n"}, l.stored()); diff != "" {
		t.Error(diff)
	}
}

// TestLongLineIsCopied: a line that is longer than an object is copied in parts.
func TestLongLineIsCopied(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir())
	l.write(1, false)
	long := strings.Repeat("x", 200) + "\n"
	path := filepath.Join(l.dir, "log", "audit.log")
	if err := os.WriteFile(path, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := l.uploader().Upload(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := strings.Join(l.stored(), ""); got != long {
		t.Errorf("stored %q", got)
	}
}
