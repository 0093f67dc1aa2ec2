// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// aptVersions remembers the answers of apt-cache, which reads all of its lists for each question: half a second. It asks again
// when a file changes on which the answers depend. It is not safe for concurrent use; the lock of the output is held.
type aptVersions struct {
	// file has the answers of the last run.
	file string
	// root is the root directory of the host: "/", except in tests.
	root string
	// now is the time.
	now func() time.Time
}

// aptAnswers is what the file has.
type aptAnswers struct {
	// State is the hash of the names, sizes and times of apt's files.
	State string
	// Outputs of apt-cache, by the packages that it was asked for, separated by spaces.
	Outputs map[string]string
}

// aptPaths are the files and folders on which the version depends that apt would install: its lists, its settings, and what is
// installed (apt-cache(8), apt_preferences(5), sources.list(5)).
func aptPaths() []string { return []string{"var/lib/apt/lists", "var/lib/dpkg/status", "etc/apt"} }

// minAptAge is how old the last change of apt's files must be before an answer is kept: a file that changes twice within one tick
// of the file system's clock has the same time.
const minAptAge = 2 * time.Second

// state returns the hash of apt's files; empty if it cannot be told, or if one of them has just changed.
func (a aptVersions) state() string {
	parts := []string{}
	newest := time.Time{}
	for _, path := range aptPaths() {
		err := filepath.WalkDir(filepath.Join(a.root, path), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "partial" || entry.Name() == "lock" {
				return err
			}

			info, err := os.Stat(path) // the settings can be links
			if err != nil {
				return err
			}

			if info.ModTime().After(newest) {
				newest = info.ModTime()
			}

			parts = append(parts, fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano()))

			return nil
		})
		if err != nil {
			return ""
		}
	}

	if a.now().Sub(newest) < minAptAge {
		return ""
	}

	return hashParts(parts...)
}

// policy returns the output of "apt-cache policy" for some packages: the one that was remembered, or that of ask.
func (a aptVersions) policy(packages []string, ask func() (string, error)) (string, error) {
	state := a.state()
	key := strings.Join(packages, " ")
	known := a.read()
	if out, ok := known.Outputs[key]; ok && state != "" && known.State == state {
		return out, nil
	}

	out, err := ask()
	if err != nil || state == "" || a.state() != state {
		return out, err
	}

	if known.State != state || known.Outputs == nil {
		known = aptAnswers{State: state, Outputs: map[string]string{}}
	}

	known.Outputs[key] = out
	a.write(known)

	return out, nil
}

// read returns what the file has. A file that is missing or damaged has nothing.
func (a aptVersions) read() aptAnswers {
	var known aptAnswers
	text, err := os.ReadFile(a.file)
	if err != nil || json.Unmarshal(text, &known) != nil {
		return aptAnswers{}
	}

	return known
}

// write keeps answers. A failure only costs time.
func (a aptVersions) write(known aptAnswers) {
	if text, err := json.Marshal(known); err == nil {
		_ = os.WriteFile(a.file, text, 0o600)
	}
}
