// SPDX-License-Identifier: Apache-2.0

// Package auditlog copies the audit log of a machine's API server to a store to which machines can only add. Each
// object has the lines that were written since the one before. A line is copied once, also if the agent is killed
// at any point; only lines whose file was deleted before they were copied are missing. Objects are numbered, so that
// their readers see what is missing: a number that is left out is an object that somebody removed, or lines that were
// never copied.
//
// The package does not know S3 and the agent.
package auditlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// DefaultMaxObject is the default of [Uploader.MaxObject], in bytes.
const DefaultMaxObject = 8 << 20

// current is the file to which the API server writes. It renames a full one to audit-<time>.log, and deletes the
// oldest of those.
const current = "audit.log"

// Uploader copies one log. It must not be used concurrently.
type Uploader struct {
	// Dir is the directory of the log files.
	Dir string
	// StateFile remembers what was copied. It is on the same machine, and survives a restart.
	StateFile string
	// Create stores a new object under a name. The error wraps [store.ErrConflict] if there is one of this name.
	Create func(ctx context.Context, name string, body []byte) error
	// MaxObject is how many bytes of the log an object has at most; 0: [DefaultMaxObject].
	MaxObject int
	// Now is the clock.
	Now func() time.Time
}

// Result is what one call of [Uploader.Upload] did.
type Result struct {
	Objects int   // that were created
	Bytes   int64 // of the log that they have
	// Lost is how many bytes of the log are known to be missing: their file was deleted before they were copied.
	Lost int64
	// Gap is set if lines may be missing, also some that were written and deleted since the call before. The number of
	// the next object shows it.
	Gap bool
}

// state is the content of [Uploader.StateFile].
type state struct {
	// Files are the files that were seen last, by the hash of their first line: it has the time and the random id of
	// a request, while names and inodes of files change and are used again.
	Files map[string]filePosition
	// Pending is the object that is being created. It is saved before, so that an agent that was killed creates the
	// same object again and does not take it for another one's.
	Pending *pendingObject `json:",omitempty"`
	// Number is that of the last object, from 1. Lost lines have one too.
	Number int64
	// Newest is the file that was the newest when they were seen last. Old files are deleted first: while it exists,
	// none is missing that was written later.
	Newest string `json:",omitempty"`
}

// filePosition is how much of a file was copied, and its size when it was seen last, in bytes.
type filePosition struct{ Copied, Size int64 }

// pendingObject is a part of a file, in bytes.
type pendingObject struct {
	Name     string
	File     string // key of [state.Files]
	From, To int64
}

// logFile is an open file of the log: its path may be that of another file by now.
type logFile struct {
	*os.File

	id   string // key of [state.Files]
	size int64
}

// Upload copies all complete lines that were not copied yet. After an error, the next call continues. Result is what
// was done until then.
func (u *Uploader) Upload(ctx context.Context) (Result, error) {
	var done Result
	files, err := u.openFiles()
	defer closeAll(files)
	if err != nil {
		return done, err
	}

	s := u.loadState()
	if err := u.finishPending(ctx, &s, files, &done); err != nil {
		return done, err
	}

	done.Lost, done.Gap = s.noteFiles(files)
	if done.Gap {
		s.Number++ // no object gets this number
	}

	if err := u.saveState(s); err != nil {
		return done, err
	}

	for _, f := range files {
		for {
			more, err := u.copyPart(ctx, &s, f, &done)
			if err != nil {
				return done, err
			}

			if !more {
				break
			}
		}
	}

	return done, nil
}

// noteFiles records the sizes of the files that exist, and forgets those that do not. It returns how many bytes of these
// were not copied, and whether there may be more of which nothing is known.
func (s *state) noteFiles(files []logFile) (lost int64, gap bool) {
	seen := map[string]filePosition{}
	for _, f := range files {
		seen[f.id] = filePosition{Copied: s.Files[f.id].Copied, Size: f.size}
	}

	for id, position := range s.Files {
		if _, ok := seen[id]; !ok {
			lost += max(0, position.Size-position.Copied)
		}
	}

	_, hasNewest := seen[s.Newest]
	gap = lost > 0 || s.Newest != "" && !hasNewest
	s.Files = seen
	s.Newest = ""
	if len(files) > 0 {
		s.Newest = files[len(files)-1].id
	}

	return lost, gap
}

// finishPending creates the object again at which an earlier call failed or was killed.
func (u *Uploader) finishPending(ctx context.Context, s *state, files []logFile, done *Result) error {
	if s.Pending == nil {
		return nil
	}

	i := slices.IndexFunc(files, func(f logFile) bool { return f.id == s.Pending.File })
	if i < 0 {
		s.Pending = nil // the file is gone, and its number stays unused unless the object exists
		return nil
	}

	part, err := readPart(files[i].File, s.Pending.From, s.Pending.To-s.Pending.From)
	if err != nil {
		return err
	}

	return u.createPending(ctx, s, part, done)
}

// copyPart copies the next lines of a file. It returns false if there are none.
func (u *Uploader) copyPart(ctx context.Context, s *state, f logFile, done *Result) (bool, error) {
	from := s.Files[f.id].Copied
	limit := u.MaxObject
	if limit == 0 {
		limit = DefaultMaxObject
	}

	part, err := readPart(f.File, from, min(int64(limit), f.size-from))
	if err != nil {
		return false, err
	}

	switch end := bytes.LastIndexByte(part, '\n'); {
	case end >= 0:
		part = part[:end+1]
	case len(part) < limit: // the line is still being written
		return false, nil
	}

	s.Number++
	s.Pending = &pendingObject{
		Name: newName(u.Now(), s.Number),
		File: f.id,
		From: from,
		To:   from + int64(len(part)),
	}
	if err := u.saveState(*s); err != nil {
		return false, err
	}

	return true, u.createPending(ctx, s, part, done)
}

// newName returns the name of an object: its time, by which names sort, its number, and what nobody can guess, so that no
// other machine can take the name.
func newName(now time.Time, number int64) string {
	return fmt.Sprintf("%s-%08d-%s.log.gz", now.UTC().Format("20060102T150405.000Z"), number, rand.Text())
}

// createPending creates the object of s.Pending with a part of the log. An object of its name can only be the same one,
// which a call that was killed has created: no one else can guess the name.
func (u *Uploader) createPending(ctx context.Context, s *state, part []byte, done *Result) error {
	body, err := compress(part)
	if err != nil {
		return err
	}

	if err := u.Create(ctx, s.Pending.Name, body); err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("upload the audit log: %w", err)
	}

	position := s.Files[s.Pending.File]
	position.Copied = s.Pending.To
	position.Size = max(position.Size, position.Copied)
	s.Files[s.Pending.File] = position
	s.Pending = nil
	done.Objects++
	done.Bytes += int64(len(part))

	return u.saveState(*s)
}

func compress(part []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(part); err != nil {
		return nil, fmt.Errorf("compress the audit log: %w", err)
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the audit log: %w", err)
	}

	return out.Bytes(), nil
}

// openFiles opens the files that have a complete line, the oldest first. The caller closes them, also after an error. The
// current file is opened first: if it is renamed meanwhile, it is found under both names, and not under none.
func (u *Uploader) openFiles() (files []logFile, err error) {
	newest, err := openFile(filepath.Join(u.Dir, current))
	if err != nil {
		return nil, err
	}

	paths, err := filepath.Glob(filepath.Join(u.Dir, "audit-*.log"))
	if err != nil {
		return newest, fmt.Errorf("list the audit log: %w", err)
	}

	slices.Sort(paths) // by the times in their names
	for _, path := range paths {
		found, err := openFile(path)
		files = append(files, found...)
		if err != nil {
			return append(files, newest...), err
		}
	}

	for _, f := range newest {
		if slices.ContainsFunc(files, func(other logFile) bool { return other.id == f.id }) {
			closeAll(newest)
			return files, nil
		}
	}

	return append(files, newest...), nil
}

func closeAll(files []logFile) {
	for _, f := range files {
		_ = f.Close()
	}
}

// maxFirstLine limits what is read of a line to identify its file, in bytes. An event of the policy's level, Metadata,
// has a few thousand.
const maxFirstLine = 64 << 10

// openFile opens a file and hashes its first line. It returns none if the file does not exist or has no complete line.
//
// The API server's user can write to the directory. A link there is not followed, and a pipe does not block: the uploader
// is root, and would copy any file of the machine.
func openFile(path string) ([]logFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file; delete it", path)
	}

	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the audit log: %w", err), f.Close())
	}

	start, err := readPart(f, 0, min(info.Size(), maxFirstLine))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	end := bytes.IndexByte(start, '\n')
	if end < 0 && len(start) < maxFirstLine {
		return nil, f.Close()
	}

	if end >= 0 {
		start = start[:end]
	}

	sum := sha256.Sum256(start)

	return []logFile{{File: f, id: hex.EncodeToString(sum[:]), size: info.Size()}}, nil
}

// readPart returns the bytes of a file at an offset, or fewer at its end.
func readPart(f *os.File, from, size int64) ([]byte, error) {
	part, err := io.ReadAll(io.NewSectionReader(f, from, max(0, size)))
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}

	return part, nil
}

// loadState returns the saved state. Without one that can be read, everything is copied again: twice is better than
// never.
func (u *Uploader) loadState() state {
	var s state
	text, err := os.ReadFile(u.StateFile)
	if err != nil || json.Unmarshal(text, &s) != nil {
		s = state{}
	}

	if s.Files == nil {
		s.Files = map[string]filePosition{}
	}

	return s
}

// saveState replaces the state file, if its content differs, and has it on the disk when it returns.
func (u *Uploader) saveState(s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save how much of the audit log is uploaded: %w", err)
	}

	if saved, err := os.ReadFile(u.StateFile); err == nil && bytes.Equal(saved, text) {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(u.StateFile), 0o755); err != nil {
		return fmt.Errorf("save how much of the audit log is uploaded: %w", err)
	}

	if err := privatefile.Write(u.StateFile, text); err != nil {
		return fmt.Errorf("save how much of the audit log is uploaded: %w", err)
	}

	return nil
}
